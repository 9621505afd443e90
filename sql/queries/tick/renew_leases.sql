-- Renews the leases that a tick holds. The runs stay running.
-- $1  worker    $2  ids    $3  attempts    $4  claimed_at    $5  lease, seconds
-- A row per claim: whether its lease is `renewed`, and still `held`. The tick stops the jobs whose
-- leases it does not hold any more. See the function.
SELECT *
FROM jobctl.renew_leases(
    worker => $1::text,
    runs => $2::bigint[],
    attempt_numbers => $3::integer[],
    claim_times => $4::timestamptz[],
    lease => $5::float8
)
