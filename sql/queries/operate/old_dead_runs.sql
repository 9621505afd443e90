-- Lists a part of a job's dead runs, by id, and says which are old. Its parameters and columns are
-- those of old_runs.sql.
-- Dead runs have their own statement, because a definition may keep them for a shorter time than
-- its other runs. If old_runs.sql also found the old dead runs, each prune would read the other
-- runs that ended between the two times, too, although it keeps them.
-- $1  job    $2  age    $3  after    $4  limit
SELECT
    run.id,
    greatest(run.created_at, run.finished_at) < now() - make_interval(secs => $2::float8)
        -- OFFSET 0: looks up each run by an index. Otherwise the planner may join all.
        AND NOT EXISTS (
            SELECT FROM jobctl.awaited_runs AS awaited
            WHERE awaited.id = run.id
            OFFSET 0
        )
        AS is_old,
    run.created_at > now() - make_interval(secs => $2::float8) AS is_young
FROM jobctl.job_runs AS run
-- Means: job_type = $1 AND id > $3. This form and this order make the planner use the index
-- job_runs_dead_of_job, see old_runs.sql.
WHERE (run.job_type, run.id) > ($1::text, $3::bigint)
    AND run.job_type <= $1::text
    AND run.status = 'dead'
ORDER BY run.job_type, run.id
LIMIT $4::bigint
