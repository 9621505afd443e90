-- Records problems that were reported.
-- $1  host_user
-- $2  delivery: the receiver, and whether it got them
-- $3  jobs    $4  details: the lines, of equal length
SELECT jobctl.record_alerts($1, $2, $3::text[], $4::text[])
