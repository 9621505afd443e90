-- Returns the ids of the given runs that the caller may see. A run is visible if the login
-- (SESSION_USER) enqueued it, or if `caller` has the privileges of the role that did. `caller` is
-- the current role of the session, for example after SET ROLE. With `or_all`, all of the runs that
-- exist are visible. Internal: only jobctl calls it.
CREATE OR REPLACE FUNCTION jobctl.visible_runs(runs bigint[], caller name, or_all boolean)
RETURNS TABLE (id bigint)
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $$
    SELECT run.id
    FROM jobctl.job_runs AS run
    WHERE run.id = ANY (runs)
        AND (
            or_all
            OR run.enqueued_by = SESSION_USER
            OR pg_has_role(caller, to_regrole(quote_ident(run.enqueued_by)), 'USAGE')
        )
$$;
