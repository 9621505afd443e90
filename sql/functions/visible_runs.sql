-- Returns those of these runs that the caller may see: the runs that its login, or a role of which
-- it is a member, enqueued. With `or_all`, returns all of these runs that exist. SESSION_USER is
-- the login even within functions of the schema's owner. Internal: only jobctl calls it.
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
