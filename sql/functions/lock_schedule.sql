-- Locks an application's schedule and returns its row; NULLs if there is none. Raises an error if
-- it belongs neither to the login nor to a role of the caller, unless the caller is an operator.
-- Internal: no part of the contract of the schema.
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
