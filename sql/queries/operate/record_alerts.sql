-- Records the problems that `jobctl check` has reported.
-- $1  host_user
-- $2  delivery: the receiver, and whether it got the report
-- $3  jobs    $4  details, arrays of equal length, one element a problem: its job, and its line in
--     the report
SELECT jobctl.record_alerts(
    host_user => $1::text,
    delivery => $2::text,
    jobs => $3::text[],
    details => $4::text[]
)
