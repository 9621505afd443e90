-- Inserts runs without keys. They conflict with no run, and ON CONFLICT would cost a tenth more.
-- Arrays of equal length, one element a run; NULL stands for the default.
-- $1  job types      $2  payloads       $3  queues            $4  priorities
-- $5  run at         $6  in, seconds    $7  max attempts      $8  timeout, seconds
-- $9  backoffs       $10 expires in, seconds                $11 shares
-- Returns the ids in the order of the arrays.
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
    asked.payload::jsonb,
    coalesce(asked.queue, 'default'),
    coalesce(asked.priority, 0),
    greatest(due.at, now()),
    coalesce(asked.max_attempts, 10),
    make_interval(secs => asked.timeout),
    coalesce(asked.backoff, 'exponential:1m..30m'),
    due.at + make_interval(secs => asked.expires_in),
    asked.share
FROM unnest(
    $1::text[],
    $2::text[],
    $3::text[],
    $4::integer[],
    $5::timestamptz[],
    $6::float8[],
    $7::integer[],
    $8::float8[],
    $9::text[],
    $10::float8[],
    $11::text[]
) WITH ORDINALITY AS asked (
    job_type,
    payload,
    queue,
    priority,
    run_at,
    seconds,
    max_attempts,
    timeout,
    backoff,
    expires_in,
    share,
    ordinal
)
CROSS JOIN LATERAL (
    SELECT coalesce(asked.run_at, now() + make_interval(secs => asked.seconds), now()) AS at
) AS due
ORDER BY asked.ordinal
RETURNING run.id
