-- The ids of all dead runs, oldest death first.
SELECT run.id
FROM jobctl.job_runs AS run
WHERE run.status = 'dead'
ORDER BY run.finished_at, run.id
