-- running -> running: renews the leases that a tick holds.
-- $1  worker    $2  ids    $3  attempts    $4  claimed_at    $5  lease, seconds
-- A row per claim, see the function: the tick stops the jobs whose leases it has lost.
SELECT *
FROM jobctl.renew_leases($1::text, $2::bigint[], $3::integer[], $4::timestamptz[], $5::float8)
