-- Returns whether a job has any run. Both parts use an index: one has the running runs, the other
-- one all other runs.
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
