-- Returns those of these runs that the login or a role of the caller enqueued; if `or_all`, each
-- run that exists. SESSION_USER is the login also within functions of the owner. Internal: no part
-- of the contract of the schema.
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
