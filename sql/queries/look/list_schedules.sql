-- The definitions and their schedules, by name.
-- $1  a name; NULL for all
SELECT
    now() AS now,
    definition.name,
    definition.schedule,
    definition.time_zone,
    definition.enabled,
    definition.paused_at,
    definition.next_run_at,
    definition.skipped_fires
FROM jobctl.job_definitions AS definition
WHERE $1::text IS NULL
    OR definition.name = $1::text
ORDER BY definition.name
