-- For an application: enqueue runs of definitions, and schedule them. The role reads nothing and
-- can't choose the command.
GRANT USAGE ON SCHEMA jobctl TO {role};
GRANT EXECUTE ON FUNCTION jobctl.enqueue, jobctl.enqueue_runs, jobctl.next_time, jobctl.result,
    jobctl.results, jobctl.run_states, jobctl.schedule, jobctl.try_enqueue, jobctl.unschedule,
    jobctl.wait_for
    TO {role};
GRANT SELECT ON jobctl.schema_migrations TO {role};
