-- Revokes everything from the role first, so that it keeps only the privileges that the statements
-- below grant. Refuses the schema's owner, because the owner would lose its own privileges. A DO
-- block has no parameters, so it reads the role's name from a setting.
SET LOCAL jobctl.grantee = {role};
DO $$
DECLARE
    grantee text := current_setting('jobctl.grantee');
BEGIN
    IF grantee = (
        SELECT pg_get_userbyid(nspowner)
        FROM pg_catalog.pg_namespace
        WHERE nspname = 'jobctl'
    ) THEN
        RAISE EXCEPTION 'cannot grant to role %: it owns the schema jobctl; name another role',
            grantee;
    END IF;
END
$$;
REVOKE ALL ON SCHEMA jobctl FROM {role};
REVOKE ALL ON ALL TABLES IN SCHEMA jobctl FROM {role};
REVOKE ALL ON ALL SEQUENCES IN SCHEMA jobctl FROM {role};
REVOKE ALL ON ALL ROUTINES IN SCHEMA jobctl FROM {role};
REVOKE ALL ON TYPE jobctl.caller FROM {role};
