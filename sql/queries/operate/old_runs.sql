-- Finished runs that prune.sql may delete, the oldest first. prune.sql checks them again.
-- $1  statuses    $2  age, seconds, at least
-- $3  finished_at    $4  id of the run before the first; NULL at the beginning. The index scan
--     continues after it: earlier entries may be deleted, but stay in the index while any snapshot
--     sees them.
-- $5  limit
SELECT run.id, run.finished_at
FROM jobctl.job_runs AS run
WHERE run.status = ANY ($1::text[])
    AND run.finished_at < now() - make_interval(secs => $2::float8)
    AND (run.finished_at, run.id)
        > (coalesce($3::timestamptz, '-infinity'), coalesce($4::bigint, 0))
ORDER BY run.finished_at, run.id
LIMIT $5::bigint
