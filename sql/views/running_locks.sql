-- The locks of running runs: how many runs have each of them now, and how many may have it at once.
-- The lock of a run's definition counts instead of the run's own.
CREATE OR REPLACE VIEW jobctl.running_locks AS
SELECT
    effective.lock,
    count(*) AS runs,
    jobctl.most_with_lock(effective.lock) AS most
FROM jobctl.job_runs AS run
LEFT JOIN jobctl.job_definitions AS definition
    ON definition.name = run.job_type
    AND definition.lock_name IS NOT NULL
CROSS JOIN LATERAL (SELECT coalesce(definition.lock_name, run.lock) AS lock) AS effective
WHERE run.status = 'running'
    AND effective.lock IS NOT NULL
GROUP BY effective.lock;
