-- Resumes a schedule at its next nominal time from now. The times during the pause are skipped. If
-- the schedule was not paused, its next time can only become earlier.
-- $1  name    $2  next nominal time; NULL without a schedule
-- $3  schedule    $4  time_zone: $2 was computed from these two
-- $5  host_user    $6  reason, for the trail
-- One row: the next time; NULL for a disabled definition. Zero rows: no such definition, or its
-- schedule was changed meanwhile.
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
    chosen => (SELECT count(*) FROM asked),
    written => (SELECT count(*) FROM resumed)
)
LEFT JOIN resumed ON true
