-- What waits, by job and queue, and what is in its way: nobody has defined the job, or no worker that
-- ticks looks at the queue.
-- $1  seconds since its last tick after which a worker no longer counts, and after which a due run
--     counts as overdue
-- Zero rows: nothing waits.
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
