-- Reads the numbers at the head of the report.
-- $1  silent_after: seconds after its last tick until a worker is silent
-- Always one row:
--   used         whether the database has any run or definition
--   dead_lately  unsettled runs that died within a day
--   later        pending runs that are not due yet
--   ..._7d       runs that ended today, in UTC, or in the six days before
--   ..._before   runs that ended in the seven days before these
--   workers      workers that should be ticking, see `missed_for` of job_workers
SELECT
    current_database()::text AS database,
    EXISTS (SELECT FROM jobctl.job_runs) OR EXISTS (SELECT FROM jobctl.job_definitions) AS used,
    dead.runs AS dead,
    dead.lately AS dead_lately,
    pending.failed,
    pending.due,
    pending.due_since,
    pending.later,
    running.runs AS running,
    running.lost,
    ended.succeeded_7d,
    ended.dead_7d,
    ended.succeeded_before,
    ended.dead_before,
    workers.known AS workers,
    workers.ticking,
    workers.last_tick_at
FROM (
    SELECT
        count(*) AS runs,
        count(*) FILTER (WHERE run.finished_at > now() - interval '1 day') AS lately
    FROM jobctl.job_runs AS run
    WHERE run.status = 'dead'
        AND run.settled_at IS NULL
) AS dead
CROSS JOIN (
    SELECT
        count(*) FILTER (WHERE run.status = 'failed') AS failed,
        count(*) FILTER (WHERE run.is_due) AS due,
        min(run.run_at) FILTER (WHERE run.is_due) AS due_since,
        count(*) FILTER (WHERE run.run_at > now()) AS later
    FROM jobctl.pending_runs AS run
) AS pending
CROSS JOIN (
    SELECT
        count(*) AS runs,
        count(*) FILTER (WHERE lease.is_lost) AS lost
    FROM jobctl.leases AS lease
) AS running
CROSS JOIN (
    SELECT
        coalesce(sum(figures.succeeded) FILTER (WHERE figures.day > today.day - 7), 0)::bigint
            AS succeeded_7d,
        coalesce(sum(figures.dead) FILTER (WHERE figures.day > today.day - 7), 0)::bigint
            AS dead_7d,
        coalesce(sum(figures.succeeded) FILTER (WHERE figures.day <= today.day - 7), 0)::bigint
            AS succeeded_before,
        coalesce(sum(figures.dead) FILTER (WHERE figures.day <= today.day - 7), 0)::bigint
            AS dead_before
    FROM jobctl.job_figures AS figures
    CROSS JOIN (SELECT (now() AT TIME ZONE 'UTC')::date AS day) AS today
    WHERE figures.day > today.day - 14
) AS ended
CROSS JOIN (
    SELECT
        count(*) FILTER (
            WHERE now() - worker.last_tick_at
                <= worker.missed_for + make_interval(secs => $1::float8)
        ) AS known,
        count(*) FILTER (
            WHERE seen.seen_at > now() - make_interval(secs => $1::float8)
        ) AS ticking,
        max(worker.last_tick_at) AS last_tick_at
    FROM jobctl.job_workers AS worker
    JOIN jobctl.seen_workers AS seen ON seen.worker = worker.worker
) AS workers
