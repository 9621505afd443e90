-- Lets a paused schedule go on with the next nominal time from now; those of the pause are not made up.
-- $1  name    $2  the next nominal time; NULL without a schedule    $3  the schedule it was computed from
-- $4  its time zone
-- Returns the next time. If the schedule was not paused, only a next time that is too late is
-- moved, to the earlier time.
-- Zero rows: no such definition, or its schedule was changed meanwhile; look again.
UPDATE jobctl.job_definitions AS definition
SET
    next_run_at = CASE
        WHEN definition.paused_at IS NULL THEN least(definition.next_run_at, $2::timestamptz)
        ELSE $2::timestamptz
    END,
    put_off_until = NULL,
    paused_at = NULL,
    updated_at = now()
WHERE definition.name = $1::text
    AND definition.schedule IS NOT DISTINCT FROM $3::text
    AND definition.time_zone = $4::text
RETURNING CASE WHEN definition.enabled THEN definition.next_run_at END AS next_run_at
