-- Lists the workers that should be ticking (`is_known`), and also the five workers with the latest
-- ticks, the latest tick first. After its last tick, a worker should be ticking for as long as it
-- ticked before, see `missed_for` of job_workers.
-- $1  limit; NULL for all    $2  tick_age: seconds that may pass between ticks
SELECT
    worker.worker,
    worker.version,
    worker.last_tick_at,
    worker.queues,
    worker.login,
    worker.is_known
FROM (
    SELECT
        ticked.*,
        now() - ticked.last_tick_at <= ticked.missed_for + make_interval(secs => $2::float8)
            AS is_known,
        row_number() OVER (ORDER BY ticked.last_tick_at DESC, ticked.worker) AS place
    FROM jobctl.job_workers AS ticked
) AS worker
WHERE worker.place <= 5
    OR worker.is_known
ORDER BY worker.place
LIMIT $1::bigint
