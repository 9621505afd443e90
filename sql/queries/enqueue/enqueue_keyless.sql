-- Inserts runs of built-in jobs without keys. They conflict with no run, and ON CONFLICT would make
-- an enqueue of one run a tenth slower.
-- $1  runs, a JSON object each, see enqueue.sql
-- Returns the ids in the order of the runs.
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
    share
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
    asked.share
FROM unnest($1::text[]) WITH ORDINALITY AS line (text, ordinal)
CROSS JOIN LATERAL jsonb_to_record(line.text::jsonb) AS asked (
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
    share text
)
CROSS JOIN LATERAL (
    SELECT coalesce(asked.run_at, now() + make_interval(secs => asked."in"), now()) AS at
) AS due
ORDER BY line.ordinal
RETURNING run.id
