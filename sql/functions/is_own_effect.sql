-- Returns whether the effects of a recorder are those of a role: it recorded them itself, or is a
-- member of the recorder. Superusers are members of each role, so that does not count for them.
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
