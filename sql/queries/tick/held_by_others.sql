-- The number of runs that a worker holds, without the claims of the tick that asks.
-- $1  worker    $2  ids    $3  attempts    $4  claimed_at, as in finish.sql
-- Always one row.
SELECT count(*)::integer AS held
FROM jobctl.leases AS lease
WHERE lease.worker = $1::text
    AND lease.locked_until > now()
    AND NOT lease.has_result
    AND NOT EXISTS (
        SELECT
        FROM unnest($2::bigint[], $3::integer[], $4::timestamptz[])
            AS mine (id, attempt, claimed_at)
        WHERE mine.id = lease.id
            AND mine.attempt = lease.attempt
            AND mine.claimed_at = lease.started_at
    )
