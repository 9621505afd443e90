-- The definitions and their schedules, by name.
-- $1  name; NULL for all
-- $2  with_figures: how the last runs ended, and the usual run time
SELECT
    now() AS now,
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
            THEN (SELECT usual.median_seconds FROM jobctl.usual(definition.name) AS usual)
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
ORDER BY definition.name
