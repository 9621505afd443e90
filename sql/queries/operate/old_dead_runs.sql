-- Lists a part of a job's dead runs, like old_runs.sql. If a definition keeps dead runs for a
-- shorter time than its other runs, old_runs.sql would read all the others that ended between these
-- two times.
-- $1  job    $2  age    $3  after    $4  limit
SELECT
    run.id,
    greatest(run.created_at, run.finished_at) < now() - make_interval(secs => $2::float8)
        AND NOT EXISTS (
            SELECT FROM jobctl.awaited_runs AS awaited
            WHERE awaited.id = run.id
            OFFSET 0
        )
        AS is_old,
    run.created_at > now() - make_interval(secs => $2::float8) AS is_young
FROM jobctl.job_runs AS run
-- This order makes the planner use the index job_runs_dead_of_job, see old_runs.sql.
WHERE (run.job_type, run.id) > ($1::text, $3::bigint)
    AND run.job_type <= $1::text
    AND run.status = 'dead'
ORDER BY run.job_type, run.id
LIMIT $4::bigint
