-- The number of runs that a worker holds, over all its ticks.
-- $1  worker
-- Always one row.
SELECT count(*)::integer AS held
FROM jobctl.job_runs AS run
WHERE run.status = 'running'
    AND run.locked_by = $1::text
    AND run.locked_until > now()
