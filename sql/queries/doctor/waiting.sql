-- The waiting runs by job and queue: whether the job has a definition, and whether a worker that
-- ticks serves the queue.
-- $1  seconds after its last tick until a worker no longer counts, and seconds until a due run is
--     overdue
-- Zero rows: no run waits.
SELECT
    waiting.job_type,
    waiting.queue,
    waiting.runs,
    waiting.overdue,
    waiting.job_type IN ('shell', 'http')
        OR EXISTS (
            SELECT FROM jobctl.job_definitions AS definition
            WHERE definition.name = waiting.job_type
        ) AS defined,
    EXISTS (
        SELECT FROM jobctl.job_workers AS worker
        WHERE worker.last_tick_at > now() - make_interval(secs => $1::float8)
            AND (worker.queues = '{}' OR waiting.queue = ANY (worker.queues))
    ) AS served
FROM (
    SELECT
        run.job_type,
        run.queue,
        count(*) AS runs,
        count(*) FILTER (WHERE run.run_at < now() - make_interval(secs => $1::float8)) AS overdue
    FROM jobctl.job_runs AS run
    WHERE run.status IN ('queued', 'failed')
    GROUP BY run.job_type, run.queue
) AS waiting
ORDER BY waiting.job_type, waiting.queue
