-- Returns whether a job has any run. One index has the running runs, and another index has all
-- other runs: each part uses one of them.
-- $1  job, defined or not
SELECT
    EXISTS (
        SELECT FROM jobctl.job_runs AS run
        WHERE run.job_type = $1::text
            AND run.status <> 'running'
    )
    OR EXISTS (
        SELECT FROM jobctl.job_runs AS run
        WHERE run.job_type = $1::text
            AND run.status = 'running'
    ) AS has_runs
