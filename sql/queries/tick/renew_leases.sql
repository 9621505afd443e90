-- A tick renews the leases that it holds, see renew_leases.sql in sql/functions.
-- $1  worker    $2  ids    $3  attempts    $4  claimed_at    $5  lease, seconds
SELECT *
FROM jobctl.renew_leases($1::text, $2::bigint[], $3::integer[], $4::timestamptz[], $5::float8)
