-- Comes first, so that the role becomes what is said below and keeps nothing else. The owner of the schema would
-- lose its own rights.
SET LOCAL jobctl.grantee = {role};
DO $$
DECLARE
    grantee text := current_setting('jobctl.grantee');
BEGIN
    IF grantee = (SELECT pg_get_userbyid(nspowner) FROM pg_catalog.pg_namespace WHERE nspname = 'jobctl') THEN
        RAISE EXCEPTION 'role % owns the schema jobctl, and so may do everything; grant to another role', grantee;
    END IF;
END
$$;
REVOKE ALL ON SCHEMA jobctl FROM {role};
REVOKE ALL ON ALL TABLES IN SCHEMA jobctl FROM {role};
REVOKE ALL ON ALL SEQUENCES IN SCHEMA jobctl FROM {role};
REVOKE ALL ON ALL ROUTINES IN SCHEMA jobctl FROM {role};
