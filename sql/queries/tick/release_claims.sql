-- running -> queued: releases claims that were never started. Their attempts do not count and leave
-- no history. A run that an operator asked to cancel, or whose live key a newer run took, is
-- cancelled instead.
-- $1  worker    $2  ids    $3  attempts    $4  claimed_at
-- If the answer to a release is lost, it is sent again. Meanwhile a tick may have claimed the same
-- attempt number, so the times are compared, see end_runs.sql.
-- One row: the cancelled runs that others wait for, and whether other runs may be due now. Nothing
-- is written for a run whose lease is lost.
SELECT ended.followed, ended.queues_runs
FROM jobctl.end_runs(
    way => 'release',
    runs => $2::bigint[],
    workers => array_fill($1::text, ARRAY[cardinality($2::bigint[])]),
    attempt_numbers => $3::integer[],
    claim_times => $4::timestamptz[]
) AS ended
