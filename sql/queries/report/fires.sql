-- The schedules, the next to fire first; paused and disabled ones come last.
-- $1  maximum number
-- `total` counts all schedules.
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
