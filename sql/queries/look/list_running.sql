-- Lists the running runs, the earliest start first.
-- $1  job; NULL for all    $2  limit
SELECT
    run.id,
    run.job_type,
    run.locked_by,
    run.started_at,
    extract(epoch FROM greatest(now(), run.started_at) - run.started_at)::float8
        AS run_time_seconds,
    lease.locked_until,
    -- The columns above `now` are the fields of `status`.
    now() AS now,
    run.attempts,
    run.max_attempts + run.uncounted_attempts AS max_attempts,
    lease.is_lost,
    run.cancel_requested_at IS NOT NULL AS cancel_requested
FROM jobctl.job_runs AS run
JOIN jobctl.leases AS lease ON lease.id = run.id
WHERE run.status = 'running'
    AND ($1::text IS NULL OR run.job_type = $1::text)
ORDER BY run.started_at, run.id
LIMIT $2::bigint
