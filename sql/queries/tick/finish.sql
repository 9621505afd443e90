-- Records the results of attempts: running -> succeeded, failed, dead, cancelled or queued. See
-- end_runs.sql.
-- $1  worker; the others are arrays of equal length, one element an attempt:
-- $2  ids             $3  attempts       $4  statuses         $5  next_attempt_in, seconds
-- $6  outcomes        $7  error_types    $8  errors           $9  details of errors
-- $10 exit_codes      $11 signals        $12 http_statuses    $13 outputs
-- $14 output_bytes    $15 truncated      $16 started_ago      $17 ended_ago, seconds
-- $18 claimed_at: the times of the claims, which are in started_at of the runs
-- A row per attempt that is recorded now, with the status of its run. A missing attempt has lost
-- its lease, or was recorded before, see recorded_before.sql. Each row repeats `followed` and
-- `queues_runs` of all runs.
SELECT
    recorded.id,
    recorded.attempt,
    recorded.claimed_at,
    recorded.status,
    ended.followed,
    ended.queues_runs
FROM jobctl.end_runs(
    way => 'result',
    runs => $2::bigint[],
    workers => array_fill($1::text, ARRAY[cardinality($2::bigint[])]),
    attempt_numbers => $3::integer[],
    claim_times => $18::timestamptz[],
    next_statuses => $4::text[],
    next_attempt_in => $5::float8[],
    outcomes => $6::text[],
    error_types => $7::text[],
    errors => $8::text[],
    details => $9::text[],
    exit_codes => $10::integer[],
    signals => $11::integer[],
    http_statuses => $12::integer[],
    outputs => $13::text[],
    output_bytes => $14::bigint[],
    are_truncated => $15::boolean[],
    started_ago => $16::float8[],
    ended_ago => $17::float8[]
) AS ended
CROSS JOIN LATERAL unnest(ended.ids, ended.attempts, ended.claimed_at, ended.statuses)
    AS recorded (id, attempt, claimed_at, status)
