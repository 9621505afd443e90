-- Claims due runs: queued or failed -> running. The function claim_runs explains the parameters,
-- and the rows, of which there is always one.
-- $1  worker              $2  tick              $3  at_most            $4  lease, seconds
-- $5  queues              $6  excluded_jobs     $7  excluded_kinds     $8  excluded_runs
-- $9  after_queues        $10 after_priorities  $11 after_run_at       $12 after_ids
-- $13 bytes               $14 free_threads      $15 lane_queue         $16 lane_priority
-- $17 after_definition    $18 after_definitions $19 after_shares       $20 only_run
-- $21 releases_right
SELECT *
FROM jobctl.claim_runs(
    $1::text, $2::text, $3::integer, $4::float8,
    $5::text[], $6::text[], $7::text[], $8::bigint[],
    $9::text[], $10::integer[], $11::timestamptz[], $12::bigint[],
    $13::bigint, $14::integer, $15::text, $16::integer,
    $17::bigint, $18::bigint[], $19::text[], $20::bigint,
    $21::boolean
)
