-- Reads what a tick must know before it changes anything. Always one row:
--   held         running runs that other ticks of the worker have claimed. A run does not count if
--                its attempt has ended, and only its result must still be recorded
--   limits       whether any definition limits its runs, or any pending run has its own lock
--   restored_at  when a tick noticed the restore of a backup that no operator has accepted, see
--                src/job/seen_ticks.rs
-- $1  worker    $2  ids    $3  attempts    $4  claimed_at: the claims of this tick
--
-- Two reasons why wake.sql does not read this. It must see the last claims of the tick from which
-- this tick takes over the claim right. And in wake.sql, its planning would cost each tick without
-- work a millisecond.
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
