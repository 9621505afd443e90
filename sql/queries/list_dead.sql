-- Dead runs, latest death first, with what their last attempt said.
-- $1  at most so many; NULL for all
SELECT
    run.id,
    run.job_type,
    run.queue,
    run.attempts,
    run.max_attempts,
    run.error_type,
    run.last_error,
    run.idempotency_key,
    run.failed_at,
    run.finished_at,
    run.created_at
FROM jobctl.job_runs AS run
WHERE run.status = 'dead'
ORDER BY run.finished_at DESC, run.id DESC
LIMIT $1::bigint
