-- Reads the time of a worker's latest tick, and the time now. A tick counts even if the database's
-- clock was set back after it. NULL: the worker is unknown.
-- $1  worker
-- Always one row.
SELECT
    (
        SELECT greatest(worker.previous_tick_at, worker.last_tick_at)
        FROM jobctl.job_workers AS worker
        WHERE worker.worker = $1::text
    ) AS latest_tick_at,
    now() AS now
