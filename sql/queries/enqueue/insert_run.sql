-- Inserts a run of a built-in job without a key.
-- $1  run, a JSON object with the fields of `NewRun` in src/store/enqueue.rs
-- One row: the id. Zero rows: a trigger of another program skipped the row. Then the caller calls
-- enqueue_runs, which raises an error.
--
-- insert_keyed_run.sql is the same statement with a key. There are two statements, because only a
-- key can conflict, and ON CONFLICT would make an enqueue without a key a tenth slower.
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
    traceparent
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
    asked.traceparent
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
    traceparent text
)
CROSS JOIN LATERAL (
    SELECT coalesce(asked.run_at, now() + make_interval(secs => asked."in"), now()) AS at
) AS due
RETURNING run.id
