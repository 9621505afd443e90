-- Reads the time of a worker's latest tick, and the time now.
-- $1  worker
-- Always one row. A NULL time: the worker is unknown.
SELECT
    (
        -- If the database's clock was set back after the previous tick, the last tick has the
        -- earlier time.
        SELECT greatest(worker.previous_tick_at, worker.last_tick_at)
        FROM jobctl.job_workers AS worker
        WHERE worker.worker = $1::text
    ) AS latest_tick_at,
    now() AS now
