-- Finds schedules that may have to fire: their next nominal time is due, or not computed yet. A
-- nominal time is one that the cron expression yields, before `spread` delays its run.
-- $1  limit    $2  with_applications: whether to include schedules that applications made
-- A row per schedule, with the rules and the times from which the tick computes the due times.
-- `seen` is its next nominal time: fire.sql changes the schedule only if it still has this time.
-- Zero rows: no schedule has to fire now.
WITH due AS (
    -- The schedules of definitions.
    (
        SELECT
            definition.id,
            NULL::bigint AS schedule_id,
            NULL::text AS application_schedule,
            definition.schedule,
            definition.time_zone,
            definition.next_run_at AS seen,
            NULL::timestamptz AS stored_at,
            NULL::timestamptz AS starts_at,
            NULL::timestamptz AS ends_at
        FROM jobctl.job_definitions AS definition
        WHERE definition.enabled
            AND definition.paused_at IS NULL
            AND definition.schedule IS NOT NULL
            AND (definition.next_run_at IS NULL OR definition.next_run_at <= now())
            -- Schedules are put off for at most an hour. A time that is later by more than a minute
            -- was written while the database's clock was ahead, and does not count.
            AND (
                definition.put_off_until IS NULL
                OR definition.put_off_until
                    NOT BETWEEN now() AND now() + interval '1 hour 1 minute'
            )
        ORDER BY definition.next_run_at, definition.id
        LIMIT $1::bigint
    )
    UNION ALL
    -- The schedules that applications made.
    SELECT
        job.id,
        schedule.id AS schedule_id,
        schedule.name AS application_schedule,
        schedule.schedule,
        schedule.time_zone,
        schedule.next_run_at AS seen,
        schedule.updated_at AS stored_at,
        schedule.starts_at,
        schedule.ends_at
    FROM jobctl.scheduling_jobs AS job
    CROSS JOIN LATERAL (
        SELECT schedule.*
        FROM jobctl.job_schedules AS schedule
        WHERE schedule.definition_id = job.id
            AND schedule.due_at <= now()
        ORDER BY schedule.due_at
        LIMIT $1::bigint
    ) AS schedule
    WHERE $2::boolean
)
SELECT
    now() AS now,
    definition.id,
    due.schedule_id,
    definition.name,
    due.application_schedule,
    due.schedule,
    due.time_zone,
    definition.catch_up,
    definition.most_fires,
    extract(epoch FROM definition.spread)::float8 AS spread,
    due.seen,
    due.stored_at,
    due.starts_at,
    due.ends_at,
    -- Schedules of applications skip the times before a resume. A resumed_at in the future was
    -- written while the database's clock was ahead: ignore it.
    CASE
        WHEN due.schedule_id IS NOT NULL AND definition.resumed_at <= now() + interval '1 minute'
            THEN definition.resumed_at
    END AS resumed_at
FROM due
JOIN jobctl.job_definitions AS definition ON definition.id = due.id
ORDER BY
    -- The schedules of definitions come before those of applications (false before true).
    due.schedule_id IS NOT NULL,
    -- The first schedule of each job, then the second of each, and so on, so that a job with many
    -- schedules does not delay the others.
    row_number() OVER (
        PARTITION BY due.id
        ORDER BY due.seen NULLS FIRST, due.schedule_id
    ),
    due.seen,
    due.id
LIMIT $1::bigint
