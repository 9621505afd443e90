-- Finds rows of job_locked_runs for take_stored.sql: rows with a result whose run no session has
-- locked any more, and rows whose claim is over. take_stored.sql checks the locks again.
-- $1  limit
-- Zero rows: each row is still needed, or its run is still locked.
--
-- In random order: if the database rejects many of these results, each tick tries other results
-- first.
WITH lockable AS MATERIALIZED (
    SELECT run.id
    FROM jobctl.job_runs AS run
    WHERE run.id = ANY (
        ARRAY(
            SELECT kept.run_id
            FROM jobctl.job_locked_runs AS kept
            WHERE kept.result IS NOT NULL
        )
    )
    FOR NO KEY UPDATE SKIP LOCKED
)
SELECT
    kept.run_id AS id,
    kept.attempt,
    kept.started_at AS claimed_at
FROM jobctl.job_locked_runs AS kept
LEFT JOIN jobctl.job_runs AS run
    ON run.id = kept.run_id
    AND run.status = 'running'
    AND run.attempts = kept.attempt
    AND run.started_at = kept.started_at
-- The claim is over: the run was deleted, has ended, or has another claim.
WHERE run.id IS NULL
    OR kept.run_id IN (SELECT lockable.id FROM lockable)
ORDER BY random()
LIMIT $1::bigint
