-- Shortens the leases of running runs that end later than any tick may ask for, because the
-- database's clock was ahead. Skips runs that other sessions have locked.
-- $1  ids
-- A row per shortened lease: seconds until it ends.
--
-- The worker may still hold the lease, so the lease must not end too soon. It lasts for another day
-- from now, the longest that a tick may ask for. If the clock was ahead at the claim, too, then the
-- lease was shorter, from its claim to its end: it lasts for that time again.
--
-- The run may also have a lease in job_locked_runs, and the later of the two ends counts, see the
-- view leases. So both rows get the same end.
WITH lockable AS MATERIALIZED (
    SELECT
        run.id,
        now() + least(interval '1 day', lease.locked_until - run.started_at) AS locked_until
    FROM jobctl.job_runs AS run
    JOIN jobctl.leases AS lease ON lease.id = run.id
    WHERE run.id = ANY ($1::bigint[])
        AND run.status = 'running'
        AND lease.is_ahead
    FOR NO KEY UPDATE OF run SKIP LOCKED
),
updated_kept AS (
    UPDATE jobctl.job_locked_runs AS kept
    SET locked_until = lockable.locked_until
    FROM lockable
    WHERE kept.run_id = lockable.id
)
UPDATE jobctl.job_runs AS run
SET locked_until = lockable.locked_until
FROM lockable
WHERE run.id = lockable.id
    AND run.status = 'running'
RETURNING
    run.id,
    extract(epoch FROM lockable.locked_until - now())::float8 AS seconds
