-- Enqueues a run of a definition. The function enqueue_runs could enqueue the run, too, but takes
-- 1.5 times as long in a new session.
-- $1  run, a JSON object with the fields of `NewRun` in src/store/enqueue.rs
-- One row: the answer of the function try_enqueue.
SELECT
    answer.id,
    answer.result,
    answer.code,
    answer.reason,
    answer.status,
    answer.due_at
FROM (VALUES ($1::text::jsonb)) AS given (run)
CROSS JOIN LATERAL jsonb_to_record(given.run) AS asked (
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
    lock text,
    worker text,
    traceparent text,
    idempotency_key text,
    key_scope text,
    on_conflict text,
    debounce float8,
    debounce_max float8
)
CROSS JOIN LATERAL jobctl.try_enqueue(
    job => asked.job_type,
    -- jsonb_to_record converts a JSON null to NULL, but a JSON null is a valid payload.
    payload => coalesce(asked.payload, given.run -> 'payload'),
    key => asked.idempotency_key,
    run_at => asked.run_at,
    run_in => make_interval(secs => asked."in"),
    priority => asked.priority,
    queue => asked.queue,
    max_attempts => asked.max_attempts,
    timeout => make_interval(secs => asked.timeout),
    backoff => asked.backoff,
    key_scope => asked.key_scope,
    on_conflict => asked.on_conflict,
    debounce => make_interval(secs => asked.debounce),
    debounce_max => make_interval(secs => asked.debounce_max),
    expires_in => make_interval(secs => asked.expires_in),
    share => asked.share,
    lock => asked.lock,
    worker => asked.worker,
    traceparent => asked.traceparent
) AS answer
