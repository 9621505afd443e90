-- Returns whether a role may complete or remove an effect that another role recorded: it is an
-- operator, or has the privileges of that role. Internal: only jobctl calls it.
CREATE OR REPLACE FUNCTION jobctl.may_settle(role name, recorded_by text)
RETURNS boolean
LANGUAGE sql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT jobctl.is_operator(role)
        OR coalesce(pg_has_role(role, to_regrole(quote_ident(recorded_by)), 'USAGE'), false)
$$;
