-- The running runs, the longest first; runs without a start come last.
-- $1  maximum number
SELECT
    run.id,
    run.job_type AS job,
    left(run.locked_by, 100) AS worker,
    run.attempts,
    run.max_attempts,
    run.started_at,
    run.locked_until < now() AS is_lost,
    run.cancel_requested_at IS NOT NULL AS cancel_requested
FROM jobctl.job_runs AS run
WHERE run.status = 'running'
ORDER BY run.started_at, run.id
LIMIT $1::bigint
