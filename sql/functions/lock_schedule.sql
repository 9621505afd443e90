-- Locks the schedule of an application and returns its row, or only NULLs if there is none. Raises
-- 42501 if the schedule belongs to another login, unless the caller is a member of the owner's role
-- or an operator. Internal: only jobctl calls it.
CREATE OR REPLACE FUNCTION jobctl.lock_schedule(name text, caller name)
RETURNS jobctl.job_schedules
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    stored jobctl.job_schedules;
BEGIN
    SELECT * INTO stored
    FROM jobctl.job_schedules AS locked
    WHERE locked.name = lock_schedule.name
    FOR UPDATE;
    -- Without such a schedule, the owner is NULL, and the condition is not true.
    IF stored.owner <> SESSION_USER
        AND pg_has_role(caller, to_regrole(quote_ident(stored.owner)), 'USAGE') IS NOT TRUE
        AND jobctl.is_operator(caller) IS NOT TRUE
    THEN
        RAISE EXCEPTION USING
            ERRCODE = '42501',
            MESSAGE = format('schedule `%s` belongs to another login', name),
            DETAIL = name;
    END IF;
    RETURN stored;
END
$$;
