-- Finds the run that holds a key, so that no other run can have it.
-- $1  key
-- $2  scope
-- Zero rows: the key is free.
SELECT run.id
FROM jobctl.job_runs AS run
WHERE run.idempotency_key = $1::text
    AND run.key_scope = $2::text
    AND (
        run.key_scope = 'retained'
        OR (run.key_scope = 'live' AND run.status IN ('blocked', 'queued', 'running', 'failed'))
    )
