-- Shortens the leases of running runs that end later than any tick may ask for, because the
-- database's clock was ahead. Skips runs that other sessions have locked.
-- $1  ids
-- A row per shortened lease: seconds until it ends.
--
-- The worker may still hold the lease, so it must not end too soon. It lasts for another day, the
-- longest that a tick may ask for. If it was shorter from the claim to its end, it lasts for that
-- long again: then the clock was ahead at the claim, too.
--
-- The lease may also be in job_locked_runs, where the later end counts, see the view leases. So
-- that row gets the same end.
WITH free AS MATERIALIZED (
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
kept AS (
    UPDATE jobctl.job_locked_runs AS kept
    SET locked_until = free.locked_until
    FROM free
    WHERE kept.run_id = free.id
)
UPDATE jobctl.job_runs AS run
SET locked_until = free.locked_until
FROM free
WHERE run.id = free.id
    AND run.status = 'running'
RETURNING
    run.id,
    extract(epoch FROM free.locked_until - now())::float8 AS seconds
