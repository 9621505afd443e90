-- The ids of enabled definitions that are not paused and for which applications have made
-- schedules. Finds each definition by one index probe after the previous one (a loose index scan),
-- so many schedules of one definition cost no more than one.
CREATE OR REPLACE VIEW jobctl.scheduling_jobs AS
WITH RECURSIVE found AS (
    SELECT min(schedule.definition_id) AS id
    FROM jobctl.job_schedules AS schedule
    UNION ALL
    SELECT (
        SELECT min(schedule.definition_id)
        FROM jobctl.job_schedules AS schedule
        WHERE schedule.definition_id > found.id
    )
    FROM found
    WHERE found.id IS NOT NULL
)
SELECT definition.id
FROM found
JOIN jobctl.job_definitions AS definition ON definition.id = found.id
WHERE definition.enabled
    AND definition.paused_at IS NULL;
