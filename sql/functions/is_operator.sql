-- Returns whether a role may act on all runs, as operators and the schema's owner may. They are the
-- roles that may update cancel_requested_at. Internal: only jobctl calls it.
CREATE OR REPLACE FUNCTION jobctl.is_operator(role name)
RETURNS boolean
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT has_column_privilege(role, 'jobctl.job_runs', 'cancel_requested_at', 'UPDATE')
$$;
