-- The runs that hold these idempotency keys, whether their payloads are the same (NULL for runs of
-- another job), their statuses, and their times if they are queued for a later time than asked. A
-- separate statement, because an INSERT can't see the run that it conflicts with.
-- $1  keys    $2  job types    $3  payloads    $4  key scopes    $5  run at    $6  in, seconds
-- A key without a row is free again: its run was deleted or ended meanwhile.
SELECT
    asked.ordinal,
    run.id,
    CASE WHEN run.job_type = asked.job_type THEN run.payload = asked.payload::jsonb END AS same,
    run.status,
    CASE
        WHEN run.status = 'queued'
            -- A concurrent enqueue may have begun after this transaction.
            AND run.run_at > greatest(
                coalesce(asked.run_at, now() + make_interval(secs => asked.seconds)),
                clock_timestamp()
            )
            THEN run.run_at
    END AS due_at
FROM unnest(
    $1::text[],
    $2::text[],
    $3::text[],
    $4::text[],
    $5::timestamptz[],
    $6::float8[]
) WITH ORDINALITY AS asked (
    idempotency_key,
    job_type,
    payload,
    key_scope,
    run_at,
    seconds,
    ordinal
)
JOIN jobctl.job_runs AS run
    ON run.idempotency_key = asked.idempotency_key
    AND run.key_scope = coalesce(asked.key_scope, 'retained')
    AND (
        run.key_scope = 'retained'
        OR (run.key_scope = 'live' AND run.status IN ('queued', 'running', 'failed'))
    )
