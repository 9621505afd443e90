-- An application: enqueues runs of definitions and reads nothing. It can't choose the command that is run.
GRANT USAGE ON SCHEMA jobctl TO {role};
GRANT EXECUTE ON FUNCTION jobctl.enqueue, jobctl.try_enqueue TO {role};
GRANT SELECT ON jobctl.schema_migrations TO {role};
