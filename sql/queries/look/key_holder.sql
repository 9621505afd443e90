-- The run that keeps others from a key.
-- $1  key
-- $2  scope
-- Zero rows: no run has the key, so it is free.
SELECT run.id
FROM jobctl.job_runs AS run
WHERE run.idempotency_key = $1::text
    AND run.key_scope = $2::text
    AND (
        run.key_scope = 'retained'
        OR (run.key_scope = 'live' AND run.status IN ('blocked', 'queued', 'running', 'failed'))
    )
