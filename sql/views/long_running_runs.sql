-- The runs whose attempt has lasted for more than ten minutes, for monitors.
CREATE OR REPLACE VIEW jobctl.long_running_runs AS
SELECT
    run.id,
    run.job_type,
    run.queue,
    run.attempts,
    run.max_attempts + run.uncounted_attempts AS max_attempts,
    run.locked_by,
    run.started_at,
    extract(epoch FROM greatest(now(), run.started_at) - run.started_at)::float8
        AS run_time_seconds,
    lease.locked_until
FROM jobctl.job_runs AS run
JOIN jobctl.leases AS lease ON lease.id = run.id
WHERE run.status = 'running'
    -- A start more than a minute in the future was written while the database's clock was ahead: it
    -- counts, too.
    AND run.started_at NOT BETWEEN now() - interval '10 minutes' AND now() + interval '1 minute';
