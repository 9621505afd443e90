-- The numbers of the report.
-- $1  since    $2  silent_after: seconds after its last tick until a worker is silent
-- Always one row.
SELECT
    current_database()::text AS database,
    EXISTS (SELECT FROM jobctl.job_runs) OR EXISTS (SELECT FROM jobctl.job_definitions) AS used,
    finished.succeeded,
    finished.retried,
    finished.dead AS dead_lately,
    (
        SELECT coalesce(sum(figures.dropped), 0)::bigint
        FROM jobctl.daily_figures AS figures
        WHERE figures.day >= ($1::timestamptz AT TIME ZONE 'UTC')::date
    ) AS dropped,
    (
        SELECT count(*)
        FROM jobctl.job_runs AS run
        WHERE run.status = 'dead'
            AND run.settled_at IS NULL
    ) AS dead,
    waiting.failed,
    waiting.due,
    waiting.due_since,
    waiting.later,
    running.runs AS running,
    running.lost,
    workers.known AS workers,
    workers.ticking,
    workers.last_tick_at
FROM (
    SELECT
        count(*) FILTER (WHERE run.status = 'succeeded') AS succeeded,
        count(*) FILTER (WHERE run.status = 'succeeded' AND run.attempts > 1) AS retried,
        count(*) FILTER (WHERE run.status = 'dead') AS dead
    FROM jobctl.job_runs AS run
    WHERE run.finished_at >= $1::timestamptz
) AS finished
CROSS JOIN (
    SELECT
        count(*) FILTER (WHERE run.status = 'failed') AS failed,
        count(*) FILTER (WHERE run.run_at <= now()) AS due,
        min(run.run_at) FILTER (WHERE run.run_at <= now()) AS due_since,
        count(*) FILTER (WHERE run.run_at > now()) AS later
    FROM jobctl.job_runs AS run
    WHERE run.status IN ('queued', 'failed')
) AS waiting
CROSS JOIN (
    SELECT
        count(*) AS runs,
        count(*) FILTER (WHERE run.locked_until < now()) AS lost
    FROM jobctl.job_runs AS run
    WHERE run.status = 'running'
) AS running
CROSS JOIN (
    SELECT
        count(*) FILTER (
            WHERE now() - worker.last_tick_at
                <= worker.missed_for + make_interval(secs => $2::float8)
        ) AS known,
        count(*) FILTER (
            WHERE worker.last_tick_at > now() - make_interval(secs => $2::float8)
                OR worker.claiming_until > now()
        ) AS ticking,
        max(worker.last_tick_at) AS last_tick_at
    FROM jobctl.job_workers AS worker
) AS workers
