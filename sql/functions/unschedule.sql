-- Deletes a schedule of an application in the caller's transaction, and returns whether it existed.
-- Runs that the schedule has queued stay. Raises 42501 if it belongs to another login, as
-- `schedule` does.
CREATE OR REPLACE FUNCTION jobctl.unschedule(
    name text,
    caller jobctl.caller DEFAULT CURRENT_USER
)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
SET lock_timeout = '2s'
AS $$
DECLARE
    stored jobctl.job_schedules := jobctl.lock_schedule(unschedule.name, caller);
BEGIN
    IF stored.id IS NULL THEN
        RETURN false;
    END IF;
    DELETE FROM jobctl.job_schedules AS deleted WHERE deleted.id = stored.id;
    RETURN jobctl.require_written('job_schedules', chosen => 1, written => FOUND::integer);
END
$$;
