-- The newest run of a job that does not run.
-- $1  job
SELECT max(run.id)
FROM jobctl.job_runs AS run
WHERE run.job_type = $1::text
    AND run.status <> 'running'
