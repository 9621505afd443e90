-- Workers, the last to tick first.
-- $1  at most so many
SELECT
    left(worker.name, 100) AS name,
    left(worker.version, 100) AS version,
    worker.last_tick_at
FROM jobctl.job_workers AS worker
ORDER BY worker.last_tick_at DESC, worker.name
LIMIT $1::bigint
