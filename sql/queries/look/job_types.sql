-- Lists the jobs of these runs.
-- $1  ids
SELECT DISTINCT run.job_type
FROM jobctl.job_runs AS run
WHERE run.id = ANY ($1::bigint[])
