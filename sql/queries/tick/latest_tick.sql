-- The latest tick of a worker, even if it was before the database's clock was set back; NULL for an
-- unknown worker. And the time.
-- $1  worker
-- Always one row.
SELECT
    (
        SELECT greatest(worker.previous_tick_at, worker.last_tick_at)
        FROM jobctl.job_workers AS worker
        WHERE worker.worker = $1::text
    ) AS latest_tick_at,
    now() AS now
