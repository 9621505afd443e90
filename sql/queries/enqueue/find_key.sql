-- Answers for runs of built-in jobs whose keys are taken. A separate statement, because an INSERT
-- can't see the run that it conflicts with.
-- $1  runs, a JSON object each, see enqueue.sql
-- A row per run whose key another run has. No row if the key is free again, because that run was
-- deleted or ended meanwhile, or if a run of the same job began to wait and can be replaced now.
SELECT
    line.ordinal,
    answer.id,
    answer.result,
    answer.code,
    answer.reason,
    answer.status,
    answer.due_at
FROM unnest($1::text[]) WITH ORDINALITY AS line (text, ordinal)
CROSS JOIN LATERAL jsonb_to_record(line.text::jsonb) AS asked (
    job_type text,
    payload jsonb,
    run_at timestamptz,
    "in" float8,
    idempotency_key text,
    key_scope text,
    on_conflict text
)
JOIN jobctl.job_runs AS run
    ON run.idempotency_key = asked.idempotency_key
    AND run.key_scope = coalesce(asked.key_scope, 'retained')
    AND (
        run.key_scope = 'retained'
        OR (run.key_scope = 'live' AND run.status IN ('blocked', 'queued', 'running', 'failed'))
    )
CROSS JOIN LATERAL (
    SELECT
        NULL::bigint,
        NULL,
        'JC009',
        format('key `%s` already has a run', asked.idempotency_key),
        NULL,
        NULL::timestamptz
    WHERE asked.on_conflict = 'error'
    UNION ALL
    SELECT
        run.id,
        'existing',
        NULL,
        NULL,
        run.status,
        CASE
            WHEN run.status = 'queued'
                -- A concurrent enqueue may have begun after this transaction.
                AND run.run_at > greatest(
                    coalesce(asked.run_at, now() + make_interval(secs => asked."in")),
                    clock_timestamp()
                )
                THEN run.run_at
        END
    WHERE coalesce(asked.on_conflict, 'same') = 'same'
        AND run.job_type = asked.job_type
        AND run.payload = asked.payload
    UNION ALL
    SELECT NULL, NULL, 'JC004', NULL, NULL, NULL
    WHERE CASE coalesce(asked.on_conflict, 'same')
        WHEN 'same' THEN run.job_type <> asked.job_type OR run.payload <> asked.payload
        WHEN 'replace' THEN run.job_type <> asked.job_type
    END
) AS answer (id, result, code, reason, status, due_at)
