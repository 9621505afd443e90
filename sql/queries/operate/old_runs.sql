-- A part of a job's succeeded and cancelled runs in the order of their ids, which is nearly that of
-- their ends. prune.sql checks them again, by the definition.
-- $1  job    $2  age: seconds after their end until runs are old
-- $3  after, id of the run before the first; the index scan continues there, because earlier
--     entries may be deleted, but stay in the index while any snapshot sees them
-- $4  limit
-- A row per run that does not run: whether it is old, and whether it is so young that no later one
-- is old.
SELECT
    run.id,
    coalesce(
        run.status IN ('succeeded', 'cancelled')
            AND greatest(run.created_at, run.finished_at)
                < now() - make_interval(secs => $2::float8)
            -- OFFSET 0: one run at a time, by the indexes.
            AND NOT EXISTS (
                SELECT FROM jobctl.awaited_runs AS awaited
                WHERE awaited.id = run.id
                OFFSET 0
            ),
        false
    ) AS is_old,
    run.created_at > now() - make_interval(secs => $2::float8) AS is_young
FROM jobctl.job_runs AS run
-- Only job_runs_job has this order. By that of the ids, the planner would read all runs of other
-- jobs between these.
WHERE (run.job_type, run.id) > ($1::text, $3::bigint)
    AND run.job_type <= $1::text
    AND run.status <> 'running'
ORDER BY run.job_type, run.id
LIMIT $4::bigint
