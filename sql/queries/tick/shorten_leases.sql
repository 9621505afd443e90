-- running -> running: shortens leases that end later than any tick may ask for, because the
-- database's clock was ahead. Skips locked runs.
-- $1  ids
-- A row per shortened lease: seconds until it ends.
-- Its worker may still hold it, so it lasts for as long as that tick can have asked for: a day, or
-- the time since the claim if the clock was ahead then, too.
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
