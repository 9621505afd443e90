-- Whether any run of a job is kept. Each branch has an index.
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
