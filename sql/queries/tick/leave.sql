-- Releases a worker's claim right.
-- $1  worker    $2  tick
-- Zero rows: another tick has the right, or none.
UPDATE jobctl.job_workers AS worker
SET
    claiming_tick = NULL,
    claiming_until = NULL
WHERE worker.worker = $1::text
    AND worker.claiming_tick = $2::text
