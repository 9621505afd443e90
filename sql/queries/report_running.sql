-- What runs, the longest first; what has no start, last. Not status_running.sql, because a viewer may ask for that
-- one, and may not read all of this.
-- $1  at most so many
SELECT
    run.id,
    run.job_type AS job,
    left(run.locked_by, 100) AS worker,
    run.attempts,
    run.max_attempts,
    run.started_at,
    run.locked_until < now() AS is_lost,
    run.cancel_requested_at IS NOT NULL AS is_asked_to_end
FROM jobctl.job_runs AS run
WHERE run.status = 'running'
ORDER BY run.started_at, run.id
LIMIT $1::bigint
