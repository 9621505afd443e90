-- Lists holds in force, paused schedules, and disabled jobs that have a max_age; see
-- src/health/stopped.rs.
-- $1  jobs; NULL for all
-- $2  tick_age: seconds after its last tick until a worker is silent
-- $3  lag: seconds after which a due run is late, unless its definition has another max_lag
-- Some columns:
--   runs        the due runs that a hold keeps from starting
--   keeps_late  whether any of these runs is late and belongs to a job with a schedule
--   max_age     of a disabled job, seconds
--   run_id      the run that asked for a later attempt, and so holds its job
WITH due AS MATERIALIZED (
    -- The due runs by job and queue. `is_late`: whether any of them is late.
    SELECT
        grouped.*,
        grouped.is_late AND EXISTS (
            SELECT FROM jobctl.job_definitions AS definition
            WHERE definition.name = grouped.job_type
                AND definition.enabled
                AND definition.schedule IS NOT NULL
        ) AS is_late_scheduled
    FROM (
        SELECT
            run.job_type,
            run.queue,
            count(*) AS runs,
            min(run.run_at)
                < now() - coalesce(
                    (
                        SELECT definition.max_lag
                        FROM jobctl.job_definitions AS definition
                        WHERE definition.name = run.job_type
                    ),
                    make_interval(secs => $3::float8)
                ) AS is_late
        FROM jobctl.pending_runs AS run
        WHERE run.is_due
            AND ($1::text[] IS NULL OR run.job_type = ANY ($1::text[]))
        GROUP BY run.job_type, run.queue
    ) AS grouped
)
SELECT
    'runs_held' AS code,
    CASE WHEN hold.scope = 'job' THEN hold.name END AS job_type,
    CASE WHEN hold.scope = 'queue' THEN hold.name END AS queue,
    CASE WHEN hold.scope = 'worker' THEN hold.name END AS worker,
    hold.held_at AS since_at,
    hold.held_until AS until_at,
    coalesce(hold.host_user, hold.recorded_by) AS stopped_by,
    hold.reason,
    delayed.runs,
    delayed.keeps_late,
    NULL::float8 AS max_age,
    hold.run_id
FROM jobctl.current_holds AS hold
LEFT JOIN jobctl.job_workers AS worker
    ON hold.scope = 'worker'
    AND worker.worker = hold.name
CROSS JOIN LATERAL (
    SELECT
        coalesce(sum(due.runs), 0)::bigint AS runs,
        coalesce(bool_or(due.is_late_scheduled), false) AS keeps_late
    FROM due
    WHERE CASE hold.scope
        WHEN 'job' THEN due.job_type = hold.name
        WHEN 'queue' THEN due.queue = hold.name
        -- The hold of a worker keeps a run from starting if no other worker may start it.
        WHEN 'worker' THEN (worker.queues = '{}' OR due.queue = ANY (worker.queues))
            AND NOT (
                SELECT serving.accepted
                FROM jobctl.serving(due.job_type, due.queue, $2::float8) AS serving
            )
        ELSE true
    END
) AS delayed
WHERE $1::text[] IS NULL
    OR CASE hold.scope
        WHEN 'job' THEN hold.name = ANY ($1::text[])
        WHEN 'queue' THEN delayed.runs > 0
            OR EXISTS (
                SELECT FROM jobctl.job_definitions AS definition
                WHERE definition.name = ANY ($1::text[])
                    AND definition.queue = hold.name
            )
        ELSE true
    END
UNION ALL
-- Paused schedules of enabled jobs, and disabled jobs.
SELECT
    CASE WHEN definition.enabled THEN 'schedule_paused' ELSE 'job_disabled' END AS code,
    definition.name AS job_type,
    NULL AS queue,
    NULL AS worker,
    CASE WHEN definition.enabled THEN definition.paused_at ELSE event.recorded_at END AS since_at,
    NULL AS until_at,
    coalesce(event.host_user, event.recorded_by) AS stopped_by,
    event.reason,
    0 AS runs,
    false AS keeps_late,
    extract(epoch FROM definition.max_age)::float8 AS max_age,
    NULL AS run_id
FROM jobctl.job_definitions AS definition
-- The event that paused or disabled the job. An `add` can add a disabled one.
LEFT JOIN LATERAL (
    SELECT event.*
    FROM jobctl.job_events AS event
    WHERE event.run_id IS NULL
        AND event.job = definition.name
        AND CASE
            WHEN definition.enabled
                THEN event.action = 'pause' AND event.recorded_at >= definition.paused_at
            ELSE event.action IN ('add', 'disable')
        END
    ORDER BY event.id DESC
    LIMIT 1
) AS event ON true
WHERE CASE
    WHEN definition.enabled
        THEN definition.paused_at IS NOT NULL
            AND (
                definition.schedule IS NOT NULL
                OR EXISTS (
                    SELECT FROM jobctl.job_schedules AS schedule
                    WHERE schedule.definition_id = definition.id
                )
            )
    ELSE definition.max_age IS NOT NULL
END
    AND ($1::text[] IS NULL OR definition.name = ANY ($1::text[]))
ORDER BY job_type, queue, worker
