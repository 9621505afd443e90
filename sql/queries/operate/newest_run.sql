-- Finds the newest run of a job, apart from running runs.
-- $1  job
SELECT max(run.id)
FROM jobctl.job_runs AS run
WHERE run.job_type = $1::text
    AND run.status <> 'running'
