-- Deletes definitions that are missing from the file. A claim ends their waiting runs as dead.
-- $1  the names in the file    $2  host user    $3  reason, for the trail
-- Returns the names of the deleted definitions.
WITH removed AS (
    DELETE FROM jobctl.job_definitions AS definition
    WHERE definition.name <> ALL ($1::text[])
    RETURNING definition.name
),
trail AS (
    INSERT INTO jobctl.job_events (action, job, host_user, reason, detail)
    SELECT 'remove', removed.name, $2::text, $3::text, 'missing from the file'
    FROM removed
    ORDER BY removed.name
)
SELECT removed.name
FROM removed
ORDER BY removed.name
