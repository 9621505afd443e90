-- The dead runs that no operator has settled, for monitors.
CREATE OR REPLACE VIEW jobctl.dead_runs AS
SELECT
    id,
    job_type,
    queue,
    attempts,
    max_attempts + uncounted_attempts AS max_attempts,
    error_type,
    last_error,
    failed_at,
    finished_at,
    created_at
FROM jobctl.job_runs
WHERE status = 'dead'
    AND settled_at IS NULL;
