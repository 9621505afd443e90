-- The definitions and their schedules, by name.
-- $1  a name; NULL for all    $2  whether to look for the last runs, which may read many
SELECT
    now() AS now,
    definition.name,
    definition.schedule,
    definition.time_zone,
    definition.enabled,
    definition.paused_at,
    definition.next_run_at,
    definition.skipped_fires,
    last.status AS last_status,
    success.finished_at AS last_succeeded_at
FROM jobctl.job_definitions AS definition
LEFT JOIN LATERAL (
    SELECT run.status
    FROM jobctl.job_runs AS run
    WHERE run.job_type = definition.name
        AND run.status <> 'running'
        AND run.finished_at IS NOT NULL
        AND $2::boolean
    ORDER BY run.id DESC
    LIMIT 1
) AS last ON true
LEFT JOIN LATERAL (
    SELECT run.finished_at
    FROM jobctl.job_runs AS run
    WHERE run.job_type = definition.name
        AND run.status = 'succeeded'
        AND $2::boolean
    ORDER BY run.id DESC
    LIMIT 1
) AS success ON true
WHERE $1::text IS NULL
    OR definition.name = $1::text
ORDER BY definition.name
