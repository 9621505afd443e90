-- Lists the definitions by name, each with its own schedule. The row of a definition is followed by
-- rows of schedules that applications made for it (`application_schedule`), the next ones to fire.
-- $1  name; NULL for all
-- $2  with_figures: whether to read how the last runs ended, and the usual run time
-- $3  applications: the maximum of schedules of applications for each job
-- `schedules`: the number of all schedules of applications of the job; 0 in the row of a definition
WITH definition AS MATERIALIZED (
    SELECT
        now() AS now,
        definition.id,
        definition.name,
        definition.schedule,
        definition.time_zone,
        array_to_string(definition.after, ', ') AS after,
        definition.enabled,
        definition.paused_at,
        definition.next_run_at,
        definition.skipped_fires,
        last.status AS last_status,
        last.succeeded_at AS last_succeeded_at,
        CASE
            WHEN $2::boolean
                THEN (jobctl.usual_run_time(definition.name)).median_seconds
        END AS usual_seconds
    FROM jobctl.job_definitions AS definition
    LEFT JOIN LATERAL (
        SELECT
            (array_agg(figures.last_status ORDER BY figures.last_ended_at DESC NULLS LAST))[1]
                AS status,
            max(figures.last_succeeded_at) AS succeeded_at
        FROM jobctl.job_figures AS figures
        WHERE figures.job_type = definition.name
            AND $2::boolean
    ) AS last ON true
    WHERE $1::text IS NULL
        OR definition.name = $1::text
)
SELECT
    definition.now,
    definition.name,
    definition.schedule,
    definition.time_zone,
    definition.after,
    definition.enabled,
    definition.paused_at,
    definition.next_run_at,
    definition.skipped_fires,
    definition.last_status,
    definition.last_succeeded_at,
    definition.usual_seconds,
    NULL AS application_schedule,
    NULL AS owner,
    0::bigint AS schedules
FROM definition
UNION ALL
SELECT
    definition.now,
    definition.name,
    schedule.schedule,
    schedule.time_zone,
    NULL AS after,
    definition.enabled,
    definition.paused_at,
    schedule.next_run_at,
    schedule.skipped_fires,
    definition.last_status,
    definition.last_succeeded_at,
    definition.usual_seconds,
    schedule.name AS application_schedule,
    schedule.owner,
    counted.schedules
FROM (
    SELECT schedule.definition_id, count(*) AS schedules
    FROM jobctl.job_schedules AS schedule
    WHERE $3::bigint > 0
    GROUP BY schedule.definition_id
) AS counted
JOIN definition ON definition.id = counted.definition_id
CROSS JOIN LATERAL (
    SELECT
        schedule.name,
        schedule.schedule,
        schedule.time_zone,
        schedule.next_run_at,
        schedule.skipped_fires,
        schedule.owner
    FROM jobctl.job_schedules AS schedule
    WHERE schedule.definition_id = definition.id
    ORDER BY schedule.due_at
    LIMIT $3::bigint
) AS schedule
ORDER BY name, application_schedule NULLS FIRST
