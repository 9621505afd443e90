-- running -> running: renews the leases a tick holds.
-- $1  worker    $2  ids    $3  attempts    $4  lease, seconds
-- $5  claimed_at, as in finish.sql
-- A row per claim. `renewed` false and `held` true: another session has locked the row; try again.
-- `held` false: another worker has the lease, or the run is gone.
WITH mine AS (
    SELECT *
    FROM unnest($2::bigint[], $3::integer[], $5::timestamptz[])
        AS mine (id, attempt, claimed_at)
),
held AS MATERIALIZED (
    SELECT run.id, run.attempts, run.started_at, run.cancel_requested_at
    FROM jobctl.job_runs AS run
    JOIN mine ON mine.id = run.id
    WHERE run.id = ANY ($2::bigint[])
        -- `coalesce` as in finish.sql.
        AND coalesce(
            run.status = 'running'
                AND run.locked_by = $1::text
                AND run.attempts = mine.attempt
                AND run.started_at = mine.claimed_at,
            false
        )
),
-- Skips locked rows, because waiting would delay all renewals. Also, the new lease would begin
-- before the wait, and so be too short.
free AS MATERIALIZED (
    SELECT run.id
    FROM jobctl.job_runs AS run
    WHERE run.id = ANY (ARRAY(SELECT held.id FROM held))
    FOR NO KEY UPDATE SKIP LOCKED
),
renewed AS (
    UPDATE jobctl.job_runs AS run
    SET locked_until = now() + make_interval(secs => $4::float8)
    FROM held
    WHERE run.id = held.id
        AND run.id = ANY (ARRAY(SELECT free.id FROM free))
        AND coalesce(
            run.status = 'running'
                AND run.locked_by = $1::text
                AND run.attempts = held.attempts
                AND run.started_at = held.started_at,
            false
        )
    RETURNING run.id
)
SELECT
    mine.id,
    mine.attempt,
    mine.claimed_at,
    renewed.id IS NOT NULL AS renewed,
    held.id IS NOT NULL AS held,
    held.cancel_requested_at IS NOT NULL AS cancel_requested
FROM mine
LEFT JOIN held
    ON held.id = mine.id
    AND held.attempts = mine.attempt
    AND held.started_at = mine.claimed_at
LEFT JOIN renewed ON renewed.id = held.id
