-- Enqueues runs of definitions through the function that applications call.
-- Arrays of equal length, one element a run; NULL stands for the definition's own.
-- $1  job types      $2  payloads       $3  queues            $4  priorities
-- $5  run at         $6  in, seconds    $7  max attempts      $8  timeout, seconds
-- $9  backoffs       $10 expires in, seconds                $11 shares
-- $12 keys           $13 key scopes     $14 debounces, seconds
-- $15 longest debounces, seconds        $16 on conflict
-- Returns a row per requested run, in the order of the arrays: the result of the function.
SELECT
    run.id,
    run.result,
    run.code,
    run.reason,
    run.status,
    run.due_at
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
    $11::text[],
    $12::text[],
    $13::text[],
    $14::float8[],
    $15::float8[],
    $16::text[]
) WITH ORDINALITY AS line (
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
    idempotency_key,
    key_scope,
    debounce,
    debounce_max,
    on_conflict,
    ordinal
)
CROSS JOIN LATERAL jobctl.try_enqueue(
    line.job_type,
    line.payload::jsonb,
    line.idempotency_key,
    line.run_at,
    make_interval(secs => line.seconds),
    line.priority,
    line.queue,
    line.max_attempts,
    make_interval(secs => line.timeout),
    line.backoff,
    line.key_scope,
    line.on_conflict,
    make_interval(secs => line.debounce),
    make_interval(secs => line.debounce_max),
    make_interval(secs => line.expires_in),
    line.share
) AS run
ORDER BY line.ordinal
