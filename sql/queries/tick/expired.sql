-- Waiting runs that expired, the oldest first. expire.sql checks them again.
-- $1  maximum number
SELECT run.id
FROM jobctl.job_runs AS run
WHERE run.expires_at <= now()
    AND run.status IN ('queued', 'failed')
ORDER BY run.expires_at, run.id
LIMIT $1::bigint
