-- Inserts a run of a built-in job with a key. The statement is that of insert_run.sql, with the
-- columns of the key. The function enqueue_runs could insert the run, too, but takes three times as
-- long in a new session.
-- $1  run, a JSON object with the fields of `NewRun` in src/store/enqueue.rs
-- One row: the id. Zero rows: another run has the key. Then the caller calls enqueue_runs, which
-- finds that run.
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
    lock,
    worker,
    traceparent,
    idempotency_key,
    key_scope
)
SELECT
    asked.job_type,
    asked.payload,
    coalesce(asked.queue, 'default'),
    coalesce(asked.priority, 0),
    greatest(due.at, now()),
    coalesce(asked.max_attempts, 10),
    make_interval(secs => asked.timeout),
    coalesce(asked.backoff, 'exponential:1m..30m'),
    due.at + make_interval(secs => asked.expires_in),
    asked.share,
    asked.lock,
    asked.worker,
    asked.traceparent,
    asked.idempotency_key,
    coalesce(asked.key_scope, 'retained')
FROM jsonb_to_record($1::text::jsonb) AS asked (
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
    key_scope text
)
CROSS JOIN LATERAL (
    SELECT coalesce(asked.run_at, now() + make_interval(secs => asked."in"), now()) AS at
) AS due
ON CONFLICT DO NOTHING
RETURNING run.id
