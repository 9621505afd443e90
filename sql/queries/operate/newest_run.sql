-- Finds the newest run of a job that is not running.
-- $1  job
-- One row: NULL if there is no such run.
SELECT max(run.id) AS id
FROM jobctl.job_runs AS run
WHERE run.job_type = $1::text
    AND run.status <> 'running'
