-- A tick gives its worker's claim right back.
-- $1  worker    $2  tick
-- Zero rows: it was not this tick's any more.
UPDATE jobctl.job_workers AS worker
SET
    claiming_tick = NULL,
    claiming_until = NULL
WHERE worker.name = $1::text
    AND worker.claiming_tick = $2::text
RETURNING worker.name
