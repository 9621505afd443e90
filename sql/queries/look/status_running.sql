-- The longest running runs; runs without a start come last.
-- $1  a job; NULL for all    $2  maximum number
SELECT
    run.id,
    run.job_type,
    run.locked_by,
    run.started_at,
    extract(epoch FROM now() - run.started_at)::float8 AS run_time_seconds,
    run.locked_until
FROM jobctl.job_runs AS run
WHERE run.status = 'running'
    AND ($1::text IS NULL OR run.job_type = $1::text)
ORDER BY run.started_at, run.id
LIMIT $2::bigint
