-- Returns whether a role may act on all runs: it is an operator or the schema's owner.
CREATE OR REPLACE FUNCTION jobctl.is_operator(role name)
RETURNS boolean
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT has_column_privilege(role, 'jobctl.job_runs', 'cancel_requested_at', 'UPDATE')
$$;
