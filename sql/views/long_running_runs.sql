CREATE OR REPLACE VIEW jobctl.long_running_runs AS
SELECT
    id,
    job_type,
    queue,
    attempts,
    max_attempts + uncounted_attempts AS max_attempts,
    locked_by,
    started_at,
    extract(epoch FROM now() - started_at)::float8 AS run_time_seconds,
    locked_until
FROM jobctl.job_runs
WHERE status = 'running'
    AND started_at < now() - interval '10 minutes';
