-- Renews the leases that a tick holds: running -> running. Internal: only jobctl calls it.
--
--   runs, attempt_numbers, claim_times    the claims, see end_runs
--   lease                                 seconds
--
-- Returns a row per claim:
--   held and renewed         the lease lasts longer now
--   held, but not renewed    another session has locked the row; the tick tries again
--   not held                 another worker has the lease, or the run was deleted; the tick stops
--                            the job
CREATE OR REPLACE FUNCTION jobctl.renew_leases(
    worker text,
    runs bigint[],
    attempt_numbers integer[],
    claim_times timestamptz[],
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
        FROM unnest(runs, attempt_numbers, claim_times)
            AS claim (id, attempt, claimed_at)
    ),
    -- Also the claims whose rows other sessions have locked.
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
    -- Skips locked rows: waiting for one row would delay all renewals. The new lease would also be
    -- too short, because now() is a time before the wait.
    locked AS MATERIALIZED (
        SELECT run.id, held.attempts, held.started_at
        FROM held
        JOIN jobctl.job_runs AS run ON run.id = held.id
        FOR NO KEY UPDATE OF run SKIP LOCKED
    ),
    renewed AS (
        UPDATE jobctl.job_runs AS run
        SET locked_until = now() + make_interval(secs => lease)
        FROM locked
        WHERE run.id = locked.id
            -- Checks again: a row may have changed after `held` read it, before it was locked.
            AND coalesce(
                run.status = 'running'
                    AND run.locked_by = renew_leases.worker
                    AND run.attempts = locked.attempts
                    AND run.started_at = locked.started_at,
                false
            )
        RETURNING run.id
    )
    SELECT
        mine.id,
        mine.attempt,
        mine.claimed_at,
        -- IN uses a hash table. A join would compare each with each, because the planner expects
        -- one run.
        coalesce(held.id IN (SELECT renewed.id FROM renewed), false) AS renewed,
        held.id IS NOT NULL AS held,
        held.cancel_requested_at IS NOT NULL AS cancel_requested
    FROM mine
    LEFT JOIN held
        ON held.id = mine.id
        AND held.attempts = mine.attempt
        AND held.started_at = mine.claimed_at;
END
$$;
