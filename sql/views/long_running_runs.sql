CREATE OR REPLACE VIEW jobctl.long_running_runs AS
SELECT
    run.id,
    run.job_type,
    run.queue,
    run.attempts,
    run.max_attempts + run.uncounted_attempts AS max_attempts,
    run.locked_by,
    run.started_at,
    extract(epoch FROM now() - run.started_at)::float8 AS run_time_seconds,
    lease.locked_until
FROM jobctl.job_runs AS run
JOIN jobctl.leases AS lease ON lease.id = run.id
WHERE run.status = 'running'
    AND run.started_at < now() - interval '10 minutes';
