-- Disables definitions that are missing from the file. Their schedules stop, and only the owner can
-- enqueue them.
-- $1  the names in the file    $2  host user    $3  reason, for the trail
-- Returns the names of the definitions that were enabled.
WITH disabled AS (
    UPDATE jobctl.job_definitions AS definition
    SET
        enabled = false,
        updated_at = now()
    WHERE definition.name <> ALL ($1::text[])
        AND definition.enabled
    RETURNING definition.name
),
trail AS (
    INSERT INTO jobctl.job_events (action, job, host_user, reason, detail)
    SELECT 'disable', disabled.name, $2::text, $3::text, 'missing from the file'
    FROM disabled
    ORDER BY disabled.name
)
SELECT disabled.name
FROM disabled
ORDER BY disabled.name
