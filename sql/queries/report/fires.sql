-- The schedules, the next to fire first; paused and disabled ones come last.
-- $1  maximum number
-- `total` counts all schedules. The last success may read many runs of a job that rarely succeeds.
SELECT definition.*, success.finished_at AS last_succeeded_at
FROM (
    SELECT
        definition.name AS job,
        definition.schedule,
        definition.time_zone,
        definition.enabled,
        definition.paused_at,
        definition.next_run_at,
        count(*) OVER () AS total
    FROM jobctl.job_definitions AS definition
    WHERE definition.schedule IS NOT NULL
    ORDER BY
        definition.enabled AND definition.paused_at IS NULL DESC,
        definition.enabled DESC,
        definition.next_run_at,
        definition.name
    LIMIT $1::bigint
) AS definition
LEFT JOIN LATERAL (
    SELECT run.finished_at
    FROM jobctl.job_runs AS run
    WHERE run.job_type = definition.job
        AND run.status = 'succeeded'
    ORDER BY run.id DESC
    LIMIT 1
) AS success ON true
ORDER BY
    definition.enabled AND definition.paused_at IS NULL DESC,
    definition.enabled DESC,
    definition.next_run_at,
    definition.job
