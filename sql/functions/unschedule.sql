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
BEGIN
    DELETE FROM jobctl.job_schedules AS deleted
    WHERE deleted.id = (SELECT (jobctl.lock_schedule(unschedule.name, caller)).id);
    RETURN FOUND;
END
$$;
