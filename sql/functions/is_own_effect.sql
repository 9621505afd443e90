-- Returns whether an effect that the role `recorded_by` recorded counts as recorded by `role`:
-- `role` is the same role, or a member of it. A superuser is a member of every role, but only the
-- effects that it recorded itself count. Internal: only jobctl calls it.
CREATE OR REPLACE FUNCTION jobctl.is_own_effect(role name, recorded_by text)
RETURNS boolean
LANGUAGE sql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(
        is_own_effect.role = is_own_effect.recorded_by
        OR pg_has_role(
            is_own_effect.role,
            to_regrole(quote_ident(is_own_effect.recorded_by)),
            'USAGE'
        )
        AND NOT (SELECT known.rolsuper FROM pg_roles AS known WHERE known.rolname = role),
        false
    )
$$;
