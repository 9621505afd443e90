-- Replaces the payloads and times of waiting runs of built-in jobs, or takes the live keys of
-- running ones, see jobctl.replace_waiting.
-- Arrays of equal length, one element a run; NULL stands for the default.
-- $1  job types    $2  payloads    $3  run at    $4  in, seconds    $5  keys
-- $6  debounces, seconds           $7  longest debounces, seconds        $8  expires in, seconds
-- $9  shares
-- A row per requested run, in the order of the arrays: the id of the replaced run, or NULL.
SELECT jobctl.replace_waiting(
    line.job_type,
    line.idempotency_key,
    line.payload::jsonb,
    greatest(due.at, now()),
    make_interval(secs => line.debounce_max),
    due.at + make_interval(secs => line.expires_in),
    line.share,
    true
) AS id
FROM unnest(
    $1::text[],
    $2::text[],
    $3::timestamptz[],
    $4::float8[],
    $5::text[],
    $6::float8[],
    $7::float8[],
    $8::float8[],
    $9::text[]
) WITH ORDINALITY AS line (
    job_type,
    payload,
    run_at,
    seconds,
    idempotency_key,
    debounce,
    debounce_max,
    expires_in,
    share,
    ordinal
)
CROSS JOIN LATERAL (
    SELECT coalesce(
        line.run_at,
        now() + make_interval(secs => coalesce(line.seconds, line.debounce)),
        now()
    ) AS at
) AS due
ORDER BY line.ordinal
