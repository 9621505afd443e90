-- A part of a job's runs in the order of their ids, which is nearly that of their ends. prune.sql
-- checks them again.
-- $1  job    $2  keep    $3  keep_dead: seconds after their end until runs are old
-- $4  after, id of the run before the first; the index scan continues there, because earlier
--     entries may be deleted, but stay in the index while any snapshot sees them
-- $5  limit
-- A row per run: whether it is old, and whether it is so young that no later one is old.
SELECT
    run.id,
    coalesce(
        run.finished_at < now() - make_interval(
            secs => CASE run.status WHEN 'dead' THEN $3::float8 ELSE $2::float8 END
        ),
        false
    ) AS is_old,
    run.created_at > now() - make_interval(secs => least($2::float8, $3::float8)) AS is_young
FROM jobctl.job_runs AS run
WHERE run.job_type = $1::text
    AND run.status <> 'running'
    AND run.id > $4::bigint
ORDER BY run.id
LIMIT $5::bigint
