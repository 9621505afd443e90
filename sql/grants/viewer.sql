-- A monitor: sees how it goes, but no payload and no output.
GRANT USAGE ON SCHEMA jobctl TO {role};
GRANT SELECT ON
    jobctl.dead_runs,
    jobctl.long_running_runs,
    jobctl.job_workers,
    jobctl.schema_migrations
    TO {role};
