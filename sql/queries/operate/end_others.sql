-- Disables or deletes the definitions that their file no longer has. The schedules of a disabled
-- definition stop, and only the owner can enqueue it. The waiting runs of a deleted definition end
-- dead when a tick claims them.
-- $1  names in the file    $2  file, its name    $3  removes: whether to delete; else disables
-- $4  host_user    $5  reason, for the trail
-- A row per definition that was disabled or deleted:
--   is_scheduled  whether it had an enabled schedule, of its own or of an application
--   waiting       how many waiting runs will end dead
--   has_hooks     whether it had hooks, which these runs lose
WITH missing AS MATERIALIZED (
    SELECT definition.name
    FROM jobctl.job_definitions AS definition
    WHERE definition.name <> ALL ($1::text[])
        AND definition.file = $2::text
        AND (definition.enabled OR $3::boolean)
    FOR NO KEY UPDATE
),
disabled AS (
    UPDATE jobctl.job_definitions AS definition
    SET
        enabled = false,
        updated_at = now()
    FROM missing
    WHERE definition.name = missing.name
        AND NOT $3::boolean
    RETURNING
        definition.name,
        definition.schedule IS NOT NULL OR EXISTS (
            SELECT FROM jobctl.job_schedules AS schedule
            WHERE schedule.definition_id = definition.id
        ) AS is_scheduled,
        definition.has_hooks
),
removed AS (
    DELETE FROM jobctl.job_definitions AS definition
    USING missing
    WHERE definition.name = missing.name
        AND $3::boolean
    RETURNING
        definition.name,
        definition.enabled
        AND (definition.schedule IS NOT NULL OR EXISTS (
            SELECT FROM jobctl.job_schedules AS schedule
            WHERE schedule.definition_id = definition.id
        )) AS is_scheduled,
        definition.has_hooks
),
ended AS (
    SELECT disabled.name, disabled.is_scheduled, disabled.has_hooks, 0 AS waiting FROM disabled
    UNION ALL
    SELECT
        removed.name,
        removed.is_scheduled,
        removed.has_hooks,
        -- Pending and blocked runs have an index each. The index of pending runs has no built-in
        -- jobs, so the planner uses it only with this condition on job_type.
        (
            SELECT count(*)
            FROM jobctl.job_runs AS run
            WHERE run.job_type = removed.name
                AND run.job_type NOT IN ('shell', 'http')
                AND run.status IN ('queued', 'failed')
        ) + (
            SELECT count(*)
            FROM jobctl.job_runs AS run
            WHERE run.job_type = removed.name
                AND run.status = 'blocked'
        ) AS waiting
    FROM removed
),
trail AS (
    INSERT INTO jobctl.job_events (action, job, host_user, reason, detail)
    SELECT
        CASE WHEN $3::boolean THEN 'remove' ELSE 'disable' END AS action,
        ended.name,
        $4::text AS host_user,
        $5::text AS reason,
        'missing from the file' AS detail
    FROM ended
    ORDER BY ended.name
)
SELECT ended.name, ended.is_scheduled, ended.waiting, ended.has_hooks
FROM missing
CROSS JOIN jobctl.require_written(
    'job_definitions',
    chosen => (SELECT count(*) FROM missing),
    written => (SELECT count(*) FROM ended)
)
LEFT JOIN ended ON ended.name = missing.name
ORDER BY ended.name
