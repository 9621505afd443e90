-- Runs whose lease expired, the oldest first. recover.sql checks them again.
-- $1  maximum number
SELECT
    run.id,
    run.job_type,
    run.locked_by AS worker,
    run.attempts AS attempt,
    run.max_attempts,
    run.backoff
FROM jobctl.job_runs AS run
WHERE run.status = 'running'
    AND run.locked_until < now()
ORDER BY run.locked_until
LIMIT $1::bigint
