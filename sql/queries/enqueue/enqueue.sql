-- Inserts runs of built-in jobs, or replaces the waiting runs that have their keys.
-- $1  runs, a JSON object each: the fields of `NewRun` in src/store/enqueue.rs; an absent field
--     stands for the default
-- A row per accepted run. No row for a run whose key is taken, see find_key.sql.
WITH asked AS (
    SELECT
        line.ordinal,
        run.*,
        greatest(due.at, now()) AS due_at,
        due.at + make_interval(secs => run.expires_in) AS expires_at
    FROM unnest($1::text[]) WITH ORDINALITY AS line (text, ordinal)
    CROSS JOIN LATERAL jsonb_to_record(line.text::jsonb) AS run (
        job_type text,
        payload jsonb,
        queue text,
        priority integer,
        run_at timestamptz,
        "in" float8,
        max_attempts integer,
        timeout float8,
        backoff text,
        expires_in float8,
        share text,
        idempotency_key text,
        key_scope text,
        on_conflict text,
        debounce float8,
        debounce_max float8
    )
    CROSS JOIN LATERAL (
        SELECT coalesce(
            run.run_at,
            now() + make_interval(secs => coalesce(run."in", run.debounce)),
            now()
        ) AS at
    ) AS due
),
tried AS (
    SELECT
        asked.*,
        coalesce(asked.idempotency_key, '') AS key,
        coalesce(asked.key_scope, 'retained') AS scope,
        CASE
            WHEN asked.on_conflict = 'replace'
                THEN jobctl.replace_waiting(
                    asked.job_type,
                    asked.idempotency_key,
                    asked.payload,
                    asked.due_at,
                    make_interval(secs => asked.debounce_max),
                    asked.expires_at,
                    asked.share,
                    true
                )
        END AS replaced
    FROM asked
    ORDER BY asked.ordinal
),
inserted AS (
    INSERT INTO jobctl.job_runs AS run (
        job_type,
        payload,
        queue,
        priority,
        run_at,
        max_attempts,
        timeout,
        backoff,
        expires_at,
        share,
        idempotency_key,
        key_scope
    )
    SELECT
        tried.job_type,
        tried.payload,
        coalesce(tried.queue, 'default'),
        coalesce(tried.priority, 0),
        tried.due_at,
        coalesce(tried.max_attempts, 10),
        make_interval(secs => tried.timeout),
        coalesce(tried.backoff, 'exponential:1m..30m'),
        tried.expires_at,
        tried.share,
        tried.idempotency_key,
        tried.scope
    FROM tried
    WHERE tried.replaced IS NULL
    ORDER BY tried.ordinal
    ON CONFLICT (idempotency_key, key_scope)
        WHERE idempotency_key IS NOT NULL
            AND (
                key_scope = 'retained'
                OR (key_scope = 'live' AND status IN ('blocked', 'queued', 'running', 'failed'))
            )
        DO NOTHING
    RETURNING
        run.id,
        coalesce(run.idempotency_key, '') AS key,
        run.key_scope AS scope
)
SELECT
    tried.ordinal,
    tried.replaced AS id,
    'replaced' AS result,
    NULL AS code,
    NULL AS reason,
    NULL AS status,
    NULL::timestamptz AS due_at
FROM tried
WHERE tried.replaced IS NOT NULL
UNION ALL
-- The n-th inserted row with a key, or without one, belongs to the n-th run with it: ids ascend in
-- the order of the runs. A join would be slow, because the planner expects ten runs.
SELECT
    max(numbered.ordinal),
    max(numbered.id),
    'enqueued',
    NULL,
    NULL,
    NULL,
    NULL
FROM (
    SELECT
        tried.ordinal,
        NULL::bigint AS id,
        tried.key,
        tried.scope,
        row_number() OVER (PARTITION BY tried.key, tried.scope ORDER BY tried.ordinal) AS number
    FROM tried
    WHERE tried.replaced IS NULL
    UNION ALL
    SELECT
        NULL,
        inserted.id,
        inserted.key,
        inserted.scope,
        row_number() OVER (PARTITION BY inserted.key, inserted.scope ORDER BY inserted.id)
    FROM inserted
) AS numbered
GROUP BY
    numbered.key,
    numbered.scope,
    numbered.number
HAVING max(numbered.id) IS NOT NULL
