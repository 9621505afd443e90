-- Pauses a schedule. Runs can still be enqueued, and waiting runs still start.
-- $1  name    $2  host_user    $3  reason, for the trail
-- Zero rows: no such definition.
WITH paused AS (
    UPDATE jobctl.job_definitions AS definition
    SET
        paused_at = coalesce(definition.paused_at, now()),
        updated_at = now()
    WHERE definition.name = $1::text
    RETURNING definition.name, definition.schedule, definition.after
),
trail AS (
    INSERT INTO jobctl.job_events (action, job, host_user, reason)
    SELECT 'pause', paused.name, $2::text, $3::text
    FROM paused
)
SELECT num_nonnulls(paused.schedule, paused.after) > 0 AS has_schedule
FROM paused
