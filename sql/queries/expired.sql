-- Runs whose lease ran out: candidates for recover.sql, which looks again.
-- $1  at most so many
SELECT
    run.id,
    run.job_type,
    run.locked_by,
    run.attempts,
    run.max_attempts,
    run.backoff
FROM jobctl.job_runs AS run
WHERE run.status = 'running'
    AND run.locked_until < now()
ORDER BY run.locked_until
LIMIT $1::bigint
