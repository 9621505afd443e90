-- Deletes a schedule of an application in the caller's transaction. Runs that it has queued stay.
-- Returns whether there was one.
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
    RETURN jobctl.require_written('job_schedules', 1, FOUND::integer);
END
$$;
