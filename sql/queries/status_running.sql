-- What has been running longest; what has no start, last.
-- $1  a job; NULL for all    $2  at most so many
SELECT
    run.id,
    run.job_type,
    run.locked_by,
    run.started_at,
    extract(epoch FROM now() - run.started_at)::float8 AS running_for,
    run.locked_until
FROM jobctl.job_runs AS run
WHERE run.status = 'running'
    AND ($1::text IS NULL OR run.job_type = $1::text)
ORDER BY run.started_at, run.id
LIMIT $2::bigint
