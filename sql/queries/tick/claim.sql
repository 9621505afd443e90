-- Claims due runs: queued or failed -> running. claim_runs.sql explains the parameters and columns.
-- Returns at least one row, even if it claims no run.
-- $1  worker              $2  tick              $3  at_most            $4  lease, seconds
-- $5  queues              $6  excluded_jobs     $7  excluded_kinds     $8  excluded_runs
-- $9  after_queues        $10 after_priorities  $11 after_run_at       $12 after_ids
-- $13 bytes               $14 free_threads      $15 lane_queue         $16 lane_priority
-- $17 after_definition    $18 after_definitions $19 after_shares       $20 only_run
-- $21 releases_right
SELECT *
FROM jobctl.claim_runs(
    worker => $1::text,
    tick => $2::text,
    at_most => $3::integer,
    lease => $4::float8,
    queues => $5::text[],
    excluded_jobs => $6::text[],
    excluded_kinds => $7::text[],
    excluded_runs => $8::bigint[],
    after_queues => $9::text[],
    after_priorities => $10::integer[],
    after_run_at => $11::timestamptz[],
    after_ids => $12::bigint[],
    bytes => $13::bigint,
    free_threads => $14::integer,
    lane_queue => $15::text,
    lane_priority => $16::integer,
    after_definition => $17::bigint,
    after_definitions => $18::bigint[],
    after_shares => $19::text[],
    only_run => $20::bigint,
    releases_right => $21::boolean
)
