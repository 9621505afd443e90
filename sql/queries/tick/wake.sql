-- Records a tick, and finds out which work there is. If any run is pending, takes or renews the
-- worker's claim right, unless another tick of the worker has it. If no run is pending, releases
-- the right. A tick without work runs only this statement. To keep it fast, it looks for pending
-- runs, and not for due runs.
-- $1  worker    $2  tick    $3  version    $4  lasts: seconds of the right
-- $5  keep: whether to take the right even if no run is pending
-- $6  queues that the tick serves, empty for all
-- $7  excluded_jobs    $8  excluded_kinds of definitions    $9  os_user
-- Always one row:
--   lost              whether a lease has ended, or ends too late
--   expired           whether a pending run has expired
--   locked            whether job_locked_runs has a row
--   followers         whether there is work for blocked runs, or for jobs that follow others
--   fires             whether a schedule is due, see due_schedules.sql
--   claiming_tick     the tick that has the right now; claiming_queues: the queues that it serves
--   previous_tick_at  the worker's latest tick before this one, see src/job/seen_ticks.rs. It is a
--                     column of job_workers, because planning a read of the row before the update
--                     takes longer
--
-- Times that no rule can have written are ignored, because the database's clock was ahead: a claim
-- right lasts for less than ten minutes, a lease for at most a day, and a schedule is put off for
-- at most an hour.
WITH seen AS MATERIALIZED (
    SELECT
        EXISTS (
            SELECT FROM jobctl.job_runs AS run
            WHERE run.status IN ('queued', 'failed')
        ) AS pending,
        EXISTS (
            SELECT FROM jobctl.job_runs AS run
            WHERE run.status = 'running'
                AND run.locked_until NOT BETWEEN now() AND now() + interval '1 day 1 minute'
        ) AS lost,
        EXISTS (
            SELECT FROM jobctl.job_runs AS run
            WHERE run.expires_at <= now()
                AND run.status IN ('queued', 'failed')
        ) AS expired,
        EXISTS (SELECT FROM jobctl.job_locked_runs) AS locked,
        EXISTS (
            SELECT FROM jobctl.job_dependencies AS dependency
            WHERE dependency.state = 'due'
        ) OR EXISTS (
            SELECT FROM jobctl.job_predecessors AS predecessor
            WHERE predecessor.is_new
        ) AS followers
),
reported AS (
    INSERT INTO jobctl.job_workers AS worker (
        worker,
        version,
        last_tick_at,
        queues,
        excluded_jobs,
        excluded_kinds,
        os_user,
        claiming_tick,
        claiming_until
    )
    SELECT
        $1::text AS worker,
        $3::text AS version,
        now() AS last_tick_at,
        $6::text[] AS queues,
        $7::text[] AS excluded_jobs,
        $8::text[] AS excluded_kinds,
        $9::text AS os_user,
        CASE WHEN seen.pending OR $5::boolean THEN $2::text END AS claiming_tick,
        CASE
            WHEN seen.pending OR $5::boolean THEN now() + make_interval(secs => $4::float8)
        END AS claiming_until
    FROM seen
    ON CONFLICT (worker) DO UPDATE SET
        version = excluded.version,
        -- The default of the column: the login of this session.
        login = excluded.login,
        os_user = excluded.os_user,
        last_tick_at = excluded.last_tick_at,
        -- The latest time of all ticks. The last tick may have an earlier one, if the database's
        -- clock was set back before it.
        previous_tick_at = greatest(worker.previous_tick_at, worker.last_tick_at),
        -- A gap of an hour begins a new series of ticks.
        ticking_since = CASE
            WHEN worker.last_tick_at < excluded.last_tick_at - interval '1 hour'
                THEN excluded.last_tick_at
            ELSE least(worker.ticking_since, excluded.last_tick_at)
        END,
        -- If another tick has the right, these columns stay as it set them. The condition stands
        -- five times, because a subquery that has it once takes a fifth longer to plan.
        queues = CASE
            WHEN worker.claiming_tick <> $2::text
                AND worker.claiming_until BETWEEN now() AND now() + interval '10 minutes'
                THEN worker.queues
            ELSE excluded.queues
        END,
        excluded_jobs = CASE
            WHEN worker.claiming_tick <> $2::text
                AND worker.claiming_until BETWEEN now() AND now() + interval '10 minutes'
                THEN worker.excluded_jobs
            ELSE excluded.excluded_jobs
        END,
        excluded_kinds = CASE
            WHEN worker.claiming_tick <> $2::text
                AND worker.claiming_until BETWEEN now() AND now() + interval '10 minutes'
                THEN worker.excluded_kinds
            ELSE excluded.excluded_kinds
        END,
        claiming_tick = CASE
            WHEN worker.claiming_tick <> $2::text
                AND worker.claiming_until BETWEEN now() AND now() + interval '10 minutes'
                THEN worker.claiming_tick
            ELSE excluded.claiming_tick
        END,
        claiming_until = CASE
            WHEN worker.claiming_tick <> $2::text
                AND worker.claiming_until BETWEEN now() AND now() + interval '10 minutes'
                THEN worker.claiming_until
            ELSE excluded.claiming_until
        END
    RETURNING
        worker.claiming_tick,
        worker.queues,
        worker.last_tick_at,
        worker.previous_tick_at
)
SELECT
    seen.lost,
    seen.expired,
    seen.locked,
    seen.followers,
    EXISTS (
        SELECT FROM jobctl.job_definitions AS definition
        WHERE definition.enabled
            AND definition.paused_at IS NULL
            AND definition.schedule IS NOT NULL
            AND (definition.next_run_at IS NULL OR definition.next_run_at <= now())
            AND (
                definition.put_off_until IS NULL
                OR definition.put_off_until
                    NOT BETWEEN now() AND now() + interval '1 hour 1 minute'
            )
    ) OR (
        EXISTS (SELECT FROM jobctl.job_schedules)
        AND jobctl.application_schedule_is_due()
    ) AS fires,
    reported.claiming_tick,
    reported.queues AS claiming_queues,
    reported.last_tick_at,
    reported.previous_tick_at
FROM seen
CROSS JOIN reported
