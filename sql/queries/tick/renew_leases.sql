-- Renews the leases that a tick holds. The runs stay running.
-- $1  worker    $2  ids    $3  attempts    $4  claimed_at    $5  lease, seconds
-- A row per claim: whether its lease is `renewed`, and whether the tick still holds it (`held`). If
-- it is held, but not renewed, another session has locked the run, and the tick tries again. The
-- tick stops a job whose lease it does not hold any more.
SELECT *
FROM jobctl.renew_leases(
    worker => $1::text,
    runs => $2::bigint[],
    attempt_numbers => $3::integer[],
    claim_times => $4::timestamptz[],
    lease => $5::float8
)
