-- Disables or deletes definitions that are missing from the file. The schedules of a disabled
-- definition stop, and only the owner can enqueue it. A claim ends the waiting runs of a deleted
-- one as dead.
-- $1  names in the file    $2  removes    $3  host_user    $4  reason, for the trail
-- Returns the names of the definitions that were disabled or deleted, and whether a schedule of the
-- definition was enabled.
WITH disabled AS (
    UPDATE jobctl.job_definitions AS definition
    SET
        enabled = false,
        updated_at = now()
    WHERE definition.name <> ALL ($1::text[])
        AND definition.enabled
        AND NOT $2::boolean
    RETURNING definition.name, definition.schedule IS NOT NULL AS is_scheduled
),
removed AS (
    DELETE FROM jobctl.job_definitions AS definition
    WHERE definition.name <> ALL ($1::text[])
        AND $2::boolean
    RETURNING
        definition.name,
        definition.schedule IS NOT NULL AND definition.enabled AS is_scheduled
),
ended AS (
    SELECT disabled.name, disabled.is_scheduled FROM disabled
    UNION ALL
    SELECT removed.name, removed.is_scheduled FROM removed
),
trail AS (
    INSERT INTO jobctl.job_events (action, job, host_user, reason, detail)
    SELECT
        CASE WHEN $2::boolean THEN 'remove' ELSE 'disable' END,
        ended.name,
        $3::text,
        $4::text,
        'missing from the file'
    FROM ended
    ORDER BY ended.name
)
SELECT ended.name, ended.is_scheduled
FROM ended
ORDER BY ended.name
