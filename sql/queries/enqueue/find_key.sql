-- The runs that hold these idempotency keys, and whether their payloads are the same; NULL for runs
-- of another job. A separate statement, because an INSERT can't see the run that it conflicts with.
-- $1  keys    $2  job types    $3  payloads    $4  key scopes
-- A key without a row is free again: its run was deleted or ended meanwhile.
SELECT
    asked.ordinal,
    run.id,
    CASE WHEN run.job_type = asked.job_type THEN run.payload = asked.payload::jsonb END AS same
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
    WITH ORDINALITY AS asked (idempotency_key, job_type, payload, key_scope, ordinal)
JOIN jobctl.job_runs AS run
    ON run.idempotency_key = asked.idempotency_key
    AND run.key_scope = coalesce(asked.key_scope, 'retained')
    AND (
        run.key_scope = 'retained'
        OR (run.key_scope = 'live' AND run.status IN ('queued', 'running', 'failed'))
    )
