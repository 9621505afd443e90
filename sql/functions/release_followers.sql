-- blocked -> queued: runs whose last predecessor has ended as the rule asks, see job_dependencies.
-- blocked -> cancelled: runs that a predecessor cancels, and in turn those that wait for them. The
-- ended runs are those of this transaction, deleted ones, or those whose followers are due. Returns
-- whether any run was released, and the cancelled runs.
--
-- Two transactions that end the last two predecessors at the same time do not see each other. So a
-- transaction decides about a run with other unmet predecessors only while it has a lock that all
-- of them use, and looks again with a new snapshot. Without other unmet ones, it is the last. It
-- waits for the lock only briefly: results must not wait for a transaction of an application. A run
-- that it can't decide about, because of this lock or one on the run, is due: a tick decides. So
-- are the runs after ten cancelled ones in a chain, because the statement must end in time.
--
-- The caller has the row locks of the ended runs, so no other call handles their dependencies.
CREATE OR REPLACE FUNCTION jobctl.release_followers(
    ended bigint[],
    OUT releases boolean,
    OUT cancelled bigint[]
)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $$
DECLARE
    candidates bigint[];
    decidable bigint[];
    part bigint[];
    rest bigint[];
    undecided bigint[];
    most_unmet integer;
    has_lock boolean;
    cancelled_now bigint[];
BEGIN
    releases := false;
    cancelled := '{}';
    FOR level IN 1..10 LOOP
        IF ended = '{}' OR NOT EXISTS (
            SELECT FROM jobctl.job_dependencies AS waits
            WHERE waits.after_id = ANY (ended)
                AND waits.state <> 'met'
        ) THEN
            RETURN;
        END IF;
        WITH changed AS (
            UPDATE jobctl.job_dependencies AS waits
            SET
                state = CASE
                    WHEN run.status = 'succeeded' THEN 'met'
                    -- A due run may have been retried since.
                    WHEN run.status NOT IN ('dead', 'cancelled') THEN 'open'
                    WHEN waits.rule = 'any_end' THEN 'met'
                    ELSE 'stuck'
                END
            FROM unnest(ended) AS asked (id)
            LEFT JOIN jobctl.job_runs AS run ON run.id = asked.id
            WHERE waits.after_id = asked.id
                AND waits.after_id = ANY (ended)
                AND waits.state <> 'met'
            RETURNING waits.run_id, waits.state, waits.rule
        )
        SELECT coalesce(array_agg(DISTINCT changed.run_id), '{}')
        INTO candidates
        FROM changed
        WHERE changed.state = 'met'
            OR (changed.state = 'stuck' AND changed.rule = 'or_cancel');
        -- How many unmet predecessors other than these the runs have: none, a few, or many.
        SELECT coalesce(max(left_over.unmet), 0)
        INTO most_unmet
        FROM unnest(candidates) AS candidate (id)
        CROSS JOIN LATERAL (
            SELECT count(*) AS unmet
            FROM (
                SELECT
                FROM jobctl.job_dependencies AS waits
                WHERE waits.run_id = candidate.id
                    AND waits.state <> 'met'
                LIMIT 20
            ) AS first
        ) AS left_over;
        has_lock := most_unmet = 0;
        -- One of many results need not wait: the last ones decide, or a tick.
        FOR try IN 1..CASE WHEN most_unmet < 20 THEN 5 ELSE 1 END LOOP
            EXIT WHEN has_lock OR current_setting('transaction_isolation') <> 'read committed';
            has_lock := pg_try_advisory_xact_lock(x'6a6f6263746e'::bigint);
            IF NOT has_lock AND most_unmet < 20 THEN
                PERFORM pg_sleep(0.005);
            END IF;
        END LOOP;
        -- Runs that start or are cancelled now. Without the lock, a tick decides about the others.
        decidable := ARRAY(
            SELECT candidate.id
            FROM unnest(candidates) AS candidate (id)
            -- EXISTS reads one entry of thousands.
            WHERE NOT EXISTS (
                    SELECT FROM jobctl.job_dependencies AS waits
                    WHERE waits.run_id = candidate.id
                        AND waits.state <> 'met'
                )
                OR EXISTS (
                    SELECT FROM jobctl.job_dependencies AS waits
                    WHERE waits.run_id = candidate.id
                        AND waits.after_id = ANY (ended)
                        AND waits.state = 'stuck'
                        AND waits.rule = 'or_cancel'
                )
        );
        -- All of them, or one by one if the database rejects that: no run delays the others.
        cancelled_now := '{}';
        part := decidable;
        rest := '{}';
        WHILE part <> '{}' LOOP
            BEGIN
                WITH free AS MATERIALIZED (
                    SELECT
                        run.id,
                        refused.after_id,
                        refused.status
                    FROM jobctl.job_runs AS run
                    LEFT JOIN LATERAL (
                        SELECT waits.after_id, coalesce(before.status, 'deleted') AS status
                        FROM jobctl.job_dependencies AS waits
                        LEFT JOIN jobctl.job_runs AS before ON before.id = waits.after_id
                        WHERE waits.run_id = run.id
                            AND waits.after_id = ANY (ended)
                            AND waits.state = 'stuck'
                            AND waits.rule = 'or_cancel'
                        LIMIT 1
                    ) AS refused ON true
                    WHERE run.id = ANY (part)
                        AND run.status = 'blocked'
                    FOR NO KEY UPDATE OF run SKIP LOCKED
                ),
                decided AS (
                    UPDATE jobctl.job_runs AS run
                    SET
                        status = CASE WHEN free.after_id IS NULL THEN 'queued' ELSE 'cancelled' END,
                        -- Claims begin with the earliest time, and this run was not due before.
                        run_at = greatest(run.run_at, now()),
                        -- `least` ignores NULL.
                        expires_at = CASE
                            WHEN run.expires_at IS NOT NULL
                                THEN least(
                                    run.expires_at
                                        + greatest(extract(epoch FROM now() - run.run_at), 0)
                                        * interval '1 second',
                                    '9999-12-31 23:59:59Z'
                                )
                        END,
                        last_error = 'run ' || free.after_id || ' did not succeed: it is '
                            || free.status,
                        error_type = CASE WHEN free.after_id IS NOT NULL THEN 'predecessor' END,
                        finished_at = CASE WHEN free.after_id IS NOT NULL THEN now() END,
                        updated_at = now()
                    FROM free
                    WHERE run.id = free.id
                        AND run.status = 'blocked'
                    RETURNING run.id, run.status
                )
                SELECT
                    cancelled_now
                        || array_agg(decided.id) FILTER (WHERE decided.status = 'cancelled'),
                    releases OR coalesce(bool_or(decided.status = 'queued'), false)
                INTO cancelled_now, releases
                FROM decided;
                part := rest[:1];
                rest := rest[2:];
            EXCEPTION
                -- The calling transaction is tried again.
                WHEN deadlock_detected OR serialization_failure THEN
                    RAISE;
                WHEN OTHERS THEN
                    IF cardinality(part) = 1 THEN
                        RAISE WARNING 'jobctl: run % stays blocked: %', part[1], SQLERRM;
                        part := rest[:1];
                        rest := rest[2:];
                    ELSE
                        rest := part[2:];
                        part := part[:1];
                    END IF;
            END;
        END LOOP;
        undecided := ARRAY(
            SELECT run.id
            FROM jobctl.job_runs AS run
            WHERE run.id = ANY (CASE WHEN has_lock THEN decidable ELSE candidates END)
                AND run.status = 'blocked'
        );
        UPDATE jobctl.job_dependencies AS waits
        SET state = 'due'
        WHERE waits.run_id = ANY (undecided)
            AND waits.after_id = ANY (ended)
            AND (waits.state = 'met' OR waits.rule = 'or_cancel');
        cancelled := cancelled || cancelled_now;
        ended := cancelled_now;
    END LOOP;
    UPDATE jobctl.job_dependencies AS waits
    SET state = 'due'
    WHERE waits.after_id = ANY (ended)
        AND waits.state <> 'met';
END
$$;
