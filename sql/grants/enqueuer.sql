-- For an application: enqueues runs of definitions, stores schedules, and reads the state and the
-- output of its own runs. It can't choose the command. The only table that it reads itself is
-- schema_migrations, because `jobctl enqueue` checks the version of the schema.
GRANT USAGE ON SCHEMA jobctl TO {role};
GRANT EXECUTE ON FUNCTION jobctl.enqueue, jobctl.enqueue_runs, jobctl.next_time, jobctl.result,
    jobctl.results, jobctl.run_states, jobctl.schedule, jobctl.try_enqueue, jobctl.unschedule,
    jobctl.wait_for
    TO {role};
GRANT SELECT ON jobctl.schema_migrations TO {role};
