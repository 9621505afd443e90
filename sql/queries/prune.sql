-- succeeded, dead or cancelled -> deleted, with their history, which a trigger takes along: runs that
-- finished longer ago than an age, oldest first, at most n of them.
-- $1  statuses    $2  age, seconds    $5  n
-- $3  finished_at and $4  id of the last one deleted before: the walk along the index goes on behind
--     it, not over what is deleted already but seen by somebody's snapshot; NULL to begin
-- Returns what was deleted; fewer than n: there are no more, but for those that others have locked.
WITH old AS MATERIALIZED (
    SELECT run.id
    FROM jobctl.job_runs AS run
    WHERE run.status = ANY ($1::text[])
        AND run.finished_at < now() - make_interval(secs => $2::float8)
        AND (run.finished_at, run.id) > (coalesce($3::timestamptz, '-infinity'), coalesce($4::bigint, 0))
    ORDER BY run.finished_at, run.id
    LIMIT $5::bigint
    FOR UPDATE SKIP LOCKED
),
deleted AS (
    DELETE FROM jobctl.job_runs AS run
    USING old
    WHERE run.id = old.id
        AND run.status = ANY ($1::text[])
        AND run.finished_at < now() - make_interval(secs => $2::float8)
    RETURNING run.id, run.status, run.finished_at
)
SELECT
    deleted.id,
    deleted.status,
    deleted.finished_at
FROM deleted
ORDER BY deleted.finished_at, deleted.id
