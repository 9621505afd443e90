-- Schedules, the next to fire first; those that are paused or disabled come last.
-- $1  at most so many
-- `schedules` counts them all.
SELECT
    definition.name,
    definition.schedule,
    definition.time_zone,
    definition.enabled,
    definition.paused_at,
    definition.next_run_at,
    count(*) OVER () AS schedules
FROM jobctl.job_definitions AS definition
WHERE definition.schedule IS NOT NULL
ORDER BY
    definition.enabled AND definition.paused_at IS NULL DESC,
    definition.enabled DESC,
    definition.next_run_at,
    definition.name
LIMIT $1::bigint
