-- Releases claims that were never started: running -> queued. Their attempts do not count and leave
-- no history. A run is cancelled instead if an operator asked for that, or if a newer run took its
-- live key.
-- $1  worker    $2  ids    $3  attempts
-- $4  claimed_at, times of the claims. An attempt number does not identify a claim: if the answer
--     to a release is lost, the release is sent again, and meanwhile a tick may have claimed the
--     run with the same attempt number.
-- One row: the cancelled runs that other runs wait for (`followed`), and whether other runs may be
-- due now (`queues_runs`). A run whose lease is lost stays as it is.
SELECT ended.followed, ended.queues_runs
FROM jobctl.end_runs(
    way => 'release',
    runs => $2::bigint[],
    workers => array_fill($1::text, ARRAY[cardinality($2::bigint[])]),
    attempt_numbers => $3::integer[],
    claim_times => $4::timestamptz[]
) AS ended
