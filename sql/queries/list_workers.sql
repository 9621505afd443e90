-- Workers, the last to tick first; texts are cut off behind the longest name that `tick` takes.
-- $1  at most so many; NULL for all
SELECT
    left(worker.name, 255) AS name,
    left(worker.version, 255) AS version,
    worker.last_tick_at
FROM jobctl.job_workers AS worker
ORDER BY worker.last_tick_at DESC, worker.name
LIMIT $1::bigint
