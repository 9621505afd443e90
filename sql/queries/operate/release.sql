-- Deletes the holds of one scope and name, such as all holds of a job. Other holds stay.
-- $1  scope    $2  name, empty for all    $3  host_user    $4  reason
-- A row per deleted hold that was in force. Other deleted holds had ended before.
WITH deleted AS (
    DELETE FROM jobctl.job_holds AS hold
    WHERE hold.scope = $1::text AND hold.name = $2::text
    RETURNING hold.*
),
released AS (
    SELECT deleted.*
    FROM deleted
    WHERE EXISTS (SELECT FROM jobctl.current_holds AS hold WHERE hold.id = deleted.id)
),
trail AS (
    INSERT INTO jobctl.job_events (action, job, host_user, reason, detail)
    SELECT
        'release' AS action,
        CASE WHEN released.scope = 'job' THEN released.name END AS job,
        $3::text AS host_user,
        $4::text AS reason,
        rtrim(released.scope || ' ' || released.name) AS detail
    FROM released
)
SELECT
    released.scope,
    released.name
FROM released
ORDER BY released.held_at, released.scope, released.name
