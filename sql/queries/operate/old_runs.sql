-- Lists a part of a job's runs that are not running, by id, and says which succeeded and cancelled
-- runs are old. Ids have nearly the order of the ends. prune.sql checks the runs again.
-- $1  job    $2  age: seconds after their end until runs are old
-- $3  after: the last run of the part before. The index scan continues after it, because the
--     entries of deleted runs stay in the index as long as any snapshot sees them
-- $4  limit
-- A row per run: whether it is old (`is_old`), and whether it was created so lately that no later
-- run is old (`is_young`).
SELECT
    run.id,
    coalesce(
        run.status IN ('succeeded', 'cancelled')
            AND greatest(run.created_at, run.finished_at)
                < now() - make_interval(secs => $2::float8)
            -- OFFSET 0: looks up each run by an index. Otherwise the planner may join all.
            AND NOT EXISTS (
                SELECT FROM jobctl.awaited_runs AS awaited
                WHERE awaited.id = run.id
                OFFSET 0
            ),
        false
    ) AS is_old,
    run.created_at > now() - make_interval(secs => $2::float8) AS is_young
FROM jobctl.job_runs AS run
-- Means: job_type = $1 AND id > $3. This form and this order make the planner use the index
-- job_runs_job. With ORDER BY id, it may read the runs of all jobs by their ids.
WHERE (run.job_type, run.id) > ($1::text, $3::bigint)
    AND run.job_type <= $1::text
    AND run.status <> 'running'
ORDER BY run.job_type, run.id
LIMIT $4::bigint
