-- running -> running: renews the leases that a tick holds. Internal: no part of the contract of the
-- schema.
--
-- runs, numbers, claims: the claims, see end_runs
-- lease: seconds
-- A row per claim. `renewed` false and `held` true: another session has locked the row; try again.
-- `held` false: another worker has the lease, or the run is gone.
CREATE OR REPLACE FUNCTION jobctl.renew_leases(
    worker text,
    runs bigint[],
    numbers integer[],
    claims timestamptz[],
    lease float8
)
RETURNS TABLE (
    id bigint,
    attempt integer,
    claimed_at timestamptz,
    renewed boolean,
    held boolean,
    cancel_requested boolean
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET row_security = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY WITH mine AS (
        SELECT *
        FROM unnest(runs, numbers, claims)
            AS mine (id, attempt, claimed_at)
    ),
    held AS MATERIALIZED (
        SELECT run.id, run.attempts, run.started_at, run.cancel_requested_at
        FROM jobctl.job_runs AS run
        JOIN mine ON mine.id = run.id
        WHERE run.id = ANY (runs)
            -- `coalesce` keeps the planner from using job_runs_running, see end_runs.
            AND coalesce(
                run.status = 'running'
                    AND run.locked_by = renew_leases.worker
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
        SET locked_until = now() + make_interval(secs => lease)
        FROM held
        WHERE run.id = held.id
            AND run.id = ANY (ARRAY(SELECT free.id FROM free))
            AND coalesce(
                run.status = 'running'
                    AND run.locked_by = renew_leases.worker
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
        renewed.id IS NOT NULL,
        held.id IS NOT NULL,
        held.cancel_requested_at IS NOT NULL
    FROM mine
    LEFT JOIN held
        ON held.id = mine.id
        AND held.attempts = mine.attempt
        AND held.started_at = mine.claimed_at
    LEFT JOIN renewed ON renewed.id = held.id;
END
$$;
