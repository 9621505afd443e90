-- Decides about blocked runs, the followers, after one of the runs that they wait for has ended,
-- was deleted or was added. No other function decides this. Internal: only jobctl calls it.
--   blocked -> queued       all runs that it waits for have ended as its rules ask, see
--                           job_dependencies
--   blocked -> cancelled    its rule is `or_cancel`, and a run ended without success
--
-- Returns
--   decides     whether it changed a row
--   followed    the cancelled runs for which other runs wait, so that the caller decides about
--               these, too
--
-- It locks the followers, and then reads what they wait for with a new snapshot. So if two
-- transactions end the last two runs that a follower waits for, the later decision sees both ends.
-- It skips followers that another session has locked: their rows stay `due`, and the next call
-- decides.
--
-- It also locks the predecessors that have not ended, and writes a new version of their rows. Then
-- a transaction that ends such a run later sees that a follower waits for it, or fails because its
-- snapshot is older.
--
-- `IS TRUE` keeps the planner from the index job_dependencies_ended, which has the rows of all
-- runs.
CREATE OR REPLACE FUNCTION jobctl.decide_followers(
    followers bigint[],
    OUT decides boolean,
    OUT followed bigint[]
)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    -- The followers that this call has locked.
    locked_ids bigint[];
    -- The unfinished predecessors of which this call has written a new version.
    rewritten_ids bigint[];
    candidates bigint[];
    to_queue bigint[];
    queued integer;
    to_cancel bigint[];
    reasons text[];
BEGIN
    -- forget_history keeps rows of deleted followers whose predecessors had not ended. Now these
    -- have ended or were deleted.
    DELETE FROM jobctl.job_dependencies AS dependency
    WHERE dependency.run_id = ANY (followers)
        AND (dependency.state = 'due') IS TRUE
        AND NOT EXISTS (
            SELECT FROM jobctl.job_runs AS run
            WHERE run.id = dependency.run_id
        );
    -- Locks the followers. The statements below read what these wait for, with a new snapshot.
    locked_ids := ARRAY(
        SELECT run.id
        FROM jobctl.job_runs AS run
        WHERE run.id = ANY (followers)
        ORDER BY run.id
        FOR NO KEY UPDATE SKIP LOCKED
    );
    -- Writes a new version of each unfinished predecessor, although nothing changes, see the
    -- header.
    WITH rewritten AS (
        UPDATE jobctl.job_runs AS run
        SET updated_at = run.updated_at
        WHERE run.id = ANY (ARRAY(
            SELECT predecessor.id
            FROM jobctl.job_runs AS predecessor
            WHERE predecessor.finished_at IS NULL
                AND predecessor.id = ANY (ARRAY(
                    SELECT dependency.after_id
                    FROM jobctl.job_dependencies AS dependency
                    WHERE dependency.run_id = ANY (locked_ids)
                        AND (dependency.state = 'due') IS TRUE
                ))
            ORDER BY predecessor.id
            FOR NO KEY UPDATE SKIP LOCKED
        ))
        RETURNING run.id
    )
    SELECT coalesce(array_agg(rewritten.id), '{}') INTO rewritten_ids FROM rewritten;
    -- Gives each due row of the locked followers its new state.
    WITH decided AS (
        UPDATE jobctl.job_dependencies AS dependency
        SET
            -- The status of a deleted predecessor is NULL.
            state = CASE
                WHEN predecessor.succeeded_attempt IS NOT NULL THEN 'met'
                WHEN predecessor.status NOT IN ('dead', 'cancelled') THEN 'open'
                WHEN dependency.rule = 'any_end' THEN 'met'
                ELSE 'stuck'
            END,
            attempt = coalesce(
                predecessor.succeeded_attempt,
                CASE WHEN predecessor.finished_at IS NOT NULL THEN predecessor.attempts END
            )
        -- `due` is the same row as `dependency`: a LATERAL join can't refer to the target of an
        -- UPDATE.
        FROM jobctl.job_dependencies AS due
        LEFT JOIN LATERAL (
            SELECT
                run.id,
                run.status,
                run.attempts,
                run.finished_at,
                CASE run.status
                    WHEN 'succeeded' THEN run.attempts
                    ELSE jobctl.succeeded_attempt(run.id)
                END AS succeeded_attempt
            FROM jobctl.job_runs AS run
            WHERE run.id = due.after_id
            -- OFFSET 0: computes succeeded_attempt once, although two expressions use it.
            OFFSET 0
        ) AS predecessor ON true
        WHERE due.run_id = ANY (locked_ids)
            AND (due.state = 'due') IS TRUE
            -- If another session has locked an unfinished predecessor, the row stays due.
            AND (
                predecessor.id IS NULL
                OR predecessor.finished_at IS NOT NULL
                OR predecessor.id = ANY (rewritten_ids)
            )
            AND dependency.run_id = due.run_id
            AND dependency.after_id = due.after_id
            AND (dependency.state = 'due') IS TRUE
        RETURNING
            dependency.run_id,
            dependency.after_id,
            dependency.state,
            CASE
                WHEN dependency.state = 'stuck' AND dependency.rule = 'or_cancel'
                    THEN format(
                        'run %s did not succeed: it is %s',
                        dependency.after_id,
                        coalesce(predecessor.status, 'deleted')
                    )
            END AS reason
    ),
    -- The followers that may now start, and those that must be cancelled. Only the latter have a
    -- `reason`.
    candidate AS (
        SELECT
            decided.run_id,
            (array_agg(decided.reason ORDER BY decided.reason IS NULL, decided.after_id))[1]
                AS reason
        FROM decided
        WHERE decided.state = 'met'
            OR decided.reason IS NOT NULL
        GROUP BY decided.run_id
    )
    SELECT
        (SELECT count(*) > 0 FROM decided),
        array_agg(candidate.run_id) FILTER (WHERE candidate.reason IS NULL),
        array_agg(candidate.run_id) FILTER (WHERE candidate.reason IS NOT NULL),
        array_agg(candidate.reason) FILTER (WHERE candidate.reason IS NOT NULL)
    INTO decides, candidates, to_cancel, reasons
    FROM candidate;
    -- A candidate starts only if no other predecessor keeps it blocked.
    to_queue := ARRAY(
        SELECT run.id
        FROM jobctl.job_runs AS run
        WHERE run.id = ANY (candidates)
            AND run.status = 'blocked'
            AND NOT EXISTS (
                SELECT FROM jobctl.job_dependencies AS dependency
                WHERE dependency.run_id = run.id
                    AND dependency.state <> 'met'
            )
    );
    UPDATE jobctl.job_runs AS run
    SET
        status = 'queued',
        -- Not in the past: claims begin with the earliest run_at. With a time at which this run was
        -- still blocked, it would start before runs that have been able to start for longer.
        run_at = greatest(run.run_at, now()),
        expires_at = CASE
            -- The run keeps the length of the time from run_at to expires_at. `least` ignores NULL,
            -- so without the condition, a run without an expiry would get one.
            WHEN run.expires_at IS NOT NULL
                THEN least(
                    run.expires_at
                        + greatest(extract(epoch FROM now() - run.run_at), 0)
                        * interval '1 second',
                    '9999-12-31 23:59:59Z'
                )
        END,
        updated_at = now()
    WHERE run.id = ANY (to_queue);
    GET DIAGNOSTICS queued = ROW_COUNT;
    PERFORM jobctl.require_written('job_runs', cardinality(to_queue), queued);
    SELECT ended.followed
    INTO followed
    FROM jobctl.end_runs('predecessor', to_cancel, errors => reasons) AS ended;
END
$$;
