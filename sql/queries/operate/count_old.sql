-- The number of runs that prune.sql would delete, by status.
-- $1  statuses    $2  age, seconds
-- A status without such runs has no row.
SELECT
    run.status,
    count(*) AS runs
FROM jobctl.job_runs AS run
WHERE run.status = ANY ($1::text[])
    AND run.finished_at < now() - make_interval(secs => $2::float8)
GROUP BY run.status
