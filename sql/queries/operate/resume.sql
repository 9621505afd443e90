-- Resumes a schedule at the next nominal time from now. The times of the pause are skipped.
-- $1  name    $2  next nominal time; NULL without a schedule    $3  schedule of that time
-- $4  time_zone of that schedule    $5  host_user    $6  reason, for the trail
-- Returns the next time. If the schedule was not paused, the time can only become earlier.
-- Zero rows: no such definition, or its schedule was changed meanwhile.
WITH asked AS MATERIALIZED (
    SELECT definition.id
    FROM jobctl.job_definitions AS definition
    WHERE definition.name = $1::text
        AND definition.schedule IS NOT DISTINCT FROM $3::text
        AND definition.time_zone = $4::text
    FOR NO KEY UPDATE
),
resumed AS (
    UPDATE jobctl.job_definitions AS definition
    SET
        next_run_at = CASE
            WHEN definition.paused_at IS NULL THEN least(definition.next_run_at, $2::timestamptz)
            ELSE $2::timestamptz
        END,
        put_off_until = NULL,
        resumed_at = CASE
            WHEN definition.paused_at IS NULL THEN definition.resumed_at
            ELSE now()
        END,
        paused_at = NULL,
        updated_at = now()
    FROM asked
    WHERE definition.id = asked.id
    RETURNING definition.name, definition.enabled, definition.next_run_at
),
trail AS (
    INSERT INTO jobctl.job_events (action, job, host_user, reason)
    SELECT 'resume', resumed.name, $5::text, $6::text
    FROM resumed
)
SELECT CASE WHEN resumed.enabled THEN resumed.next_run_at END AS next_run_at
FROM asked
CROSS JOIN jobctl.require_written(
    'job_definitions',
    (SELECT count(*) FROM asked),
    (SELECT count(*) FROM resumed)
)
LEFT JOIN resumed ON true
