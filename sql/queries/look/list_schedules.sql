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
    ORDER BY run.id DESC
    LIMIT 1
) AS last ON true
LEFT JOIN LATERAL (
    SELECT run.finished_at
    FROM jobctl.job_runs AS run
    WHERE run.job_type = definition.name
        AND run.status = 'succeeded'
    ORDER BY run.id DESC
    LIMIT 1
) AS success ON true
WHERE $1::text IS NULL
    OR definition.name = $1::text
ORDER BY definition.name
