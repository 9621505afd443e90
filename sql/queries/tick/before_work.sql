-- What a tick must know before it changes anything: how many runs the worker's other ticks hold,
-- whether some definition limits how many of its runs may run at once or some pending run has a
-- lock of its own, and when a tick noticed a restore that no operator has accepted; see
-- src/job/seen_ticks.rs. It is not part of wake.sql, because planning it would cost each tick
-- without work a millisecond.
-- $1  worker    $2  ids    $3  attempts    $4  claimed_at: the claims of this tick
-- Always one row.
SELECT
    count(*)::integer AS held,
    EXISTS (
        SELECT FROM jobctl.job_definitions AS definition
        WHERE definition.is_limited
    ) OR EXISTS (SELECT FROM jobctl.pending_lock_runs) AS limits,
    (SELECT restore.recorded_at FROM jobctl.unaccepted_restores AS restore) AS restored_at
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
