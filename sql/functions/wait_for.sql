-- Makes runs that this transaction has enqueued wait for other runs, their predecessors. A run is
-- blocked until its predecessors have ended as the rules ask, see job_dependencies.
--
-- The arguments are arrays of equal length: runs[i] waits for predecessors[i] by rules[i].
--
-- Returns one row: the refused run with the code and the reason, or three NULLs if nothing was
-- refused.
--
-- A predecessor may end before this transaction commits. The transaction that ends it does not see
-- the rows that this one inserts, and no lock keeps a predecessor from starting. So the rows begin
-- as `due`, and the next tick decides about the runs. Two kinds of rows need no tick:
--   - The predecessor was enqueued by this transaction, too: no other transaction sees it, so none
--     can end it. The row is `open`.
--   - The predecessor has succeeded once, which meets every rule, see succeeded_attempt. The row is
--     `met`.
--
-- SECURITY DEFINER: an enqueuer may not read the tables. It can only name predecessors that
-- run_states shows to it. For other runs, the answer is the same as for missing ones. If a job has
-- pass_result, its runs read the outputs of their predecessors, so the enqueuer can only name runs
-- whose outputs it may read.
CREATE OR REPLACE FUNCTION jobctl.wait_for(
    runs bigint[],
    predecessors bigint[],
    rules text[],
    caller jobctl.caller DEFAULT CURRENT_USER,
    OUT run_id bigint,
    OUT code text,
    OUT reason text
)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $$
#variable_conflict use_column
DECLARE
    -- The most runs that one run waits for, and the most that wait for one run.
    most CONSTANT integer := 10000;
    refused record;
    written integer;
BEGIN
    -- Refuses if a pair is not allowed, and names the pair with the smallest predecessor.
    SELECT asked.*
    INTO refused
    FROM (
        SELECT
            given.run_id,
            given.after_id,
            given.rule,
            -- A run that names itself counts as missing: when it was enqueued, its id did not
            -- exist yet.
            run.id IS NULL OR given.after_id = given.run_id AS is_missing,
            -- This transaction has cancelled the predecessor, because a definition was full
            -- (`dropped`; perhaps to make room for the new run), or because the predecessor itself
            -- waited for a run that was cancelled (`predecessor`).
            run.error_type IN ('dropped', 'predecessor') AND run.finished_at = now() AS is_dropped,
            run.status
        FROM unnest(runs, predecessors, rules) AS given (run_id, after_id, rule)
        LEFT JOIN jobctl.visible_runs(
            predecessors,
            caller,
            -- A caller that may read statuses, and with pass_result also outputs, sees all runs.
            has_column_privilege(caller, 'jobctl.job_runs', 'status', 'SELECT')
                AND (
                    has_column_privilege(caller, 'jobctl.job_attempts', 'output', 'SELECT')
                    OR NOT EXISTS (
                        SELECT FROM jobctl.job_runs AS new
                        JOIN jobctl.job_definitions AS definition
                            ON definition.name = new.job_type
                        WHERE new.id = ANY (runs)
                            AND definition.pass_result
                    )
                )
        ) AS visible ON visible.id = given.after_id
        LEFT JOIN jobctl.job_runs AS run ON run.id = visible.id
    ) AS asked
    WHERE asked.is_missing
        OR asked.is_dropped
        OR coalesce(asked.rule NOT IN ('success', 'any_end', 'or_cancel'), true)
        -- Refuse `or_cancel` after a run that has ended without success: it would cancel the new
        -- run at once. A run that succeeded, and was repeated by `retry --again` without success,
        -- counts as succeeded.
        OR (
            asked.rule = 'or_cancel'
            AND asked.status IN ('dead', 'cancelled')
            AND jobctl.succeeded_attempt(asked.after_id) IS NULL
        )
    ORDER BY asked.after_id
    LIMIT 1;
    IF FOUND THEN
        run_id := refused.run_id;
        code := CASE
            WHEN refused.is_missing THEN 'JC010'
            WHEN refused.is_dropped THEN 'JC008'
            ELSE '22023'
        END;
        reason := CASE
            WHEN refused.is_missing
                THEN format('no run %s', coalesce(refused.after_id::text, 'NULL'))
            WHEN refused.is_dropped
                THEN format(
                    'it waits for run %s, which this transaction has dropped, as a definition '
                    'is full',
                    refused.after_id
                )
            WHEN coalesce(refused.rule <> 'or_cancel', true)
                THEN 'after_rule must be success, any_end or or_cancel'
            ELSE format(
                'run %s is %s, which would cancel the new run at once',
                refused.after_id,
                refused.status
            )
        END;
        RETURN;
    END IF;
    -- Stores the pairs.
    INSERT INTO jobctl.job_dependencies (run_id, after_id, rule, state, attempt)
    SELECT DISTINCT ON (run.id, predecessor.id)
        run.id,
        predecessor.id,
        asked.rule,
        CASE
            WHEN succeeded.attempt IS NOT NULL THEN 'met'
            -- xmin: this transaction has written the row of the predecessor, see the header.
            WHEN predecessor.xmin = pg_current_xact_id()::xid AND predecessor.finished_at IS NULL
                THEN 'open'
            ELSE 'due'
        END,
        succeeded.attempt
    FROM unnest(runs, predecessors, rules) AS asked (run_id, after_id, rule)
    JOIN jobctl.job_runs AS run ON run.id = asked.run_id
    JOIN jobctl.job_runs AS predecessor ON predecessor.id = asked.after_id
    CROSS JOIN LATERAL (
        SELECT CASE predecessor.status
            WHEN 'succeeded' THEN predecessor.attempts
            ELSE jobctl.succeeded_attempt(predecessor.id)
        END AS attempt
        -- OFFSET 0: computes succeeded_attempt once, although two expressions use it.
        OFFSET 0
    ) AS succeeded
    -- Only runs that this login has enqueued in this transaction: an enqueuer must not keep other
    -- runs from starting.
    WHERE run.enqueued_by = SESSION_USER
        AND run.created_at = now()
        AND run.status IN ('queued', 'blocked')
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS written = ROW_COUNT;
    -- Fewer rows than pairs: a pair is there twice, or a trigger has skipped a row.
    IF written < cardinality(runs) THEN
        PERFORM jobctl.require_written(
            'job_dependencies', chosen => count(*), written => count(dependency.run_id)
        )
        FROM unnest(runs, predecessors) AS asked (run_id, after_id)
        JOIN jobctl.job_runs AS run ON run.id = asked.run_id
        JOIN jobctl.job_runs AS predecessor ON predecessor.id = asked.after_id
        LEFT JOIN jobctl.job_dependencies AS dependency
            ON dependency.run_id = asked.run_id
            AND dependency.after_id = asked.after_id
        WHERE run.enqueued_by = SESSION_USER
            AND run.created_at = now()
            AND run.status IN ('queued', 'blocked');
    END IF;
    -- Refuses if a run waits for too many runs, or too many runs wait for one run.
    SELECT counted.run_id, counted.after_id
    INTO refused
    FROM (
        SELECT dependency.run_id, NULL::bigint AS after_id, count(*) AS dependencies
        FROM jobctl.job_dependencies AS dependency
        WHERE dependency.run_id = ANY (runs)
        GROUP BY dependency.run_id
        UNION ALL
        SELECT
            max(dependency.run_id) FILTER (WHERE dependency.run_id = ANY (runs)),
            dependency.after_id,
            count(*)
        FROM jobctl.job_dependencies AS dependency
        WHERE dependency.after_id = ANY (predecessors)
            AND dependency.state <> 'met'
        GROUP BY dependency.after_id
    ) AS counted
    WHERE counted.dependencies > most
        AND counted.run_id IS NOT NULL
    LIMIT 1;
    IF FOUND THEN
        run_id := refused.run_id;
        code := '22023';
        reason := CASE
            WHEN refused.after_id IS NULL THEN format('a run can wait for at most %s runs', most)
            ELSE format('at most %s runs can wait for run %s', most, refused.after_id)
        END;
        RETURN;
    END IF;
    -- Blocks the runs that must wait for a predecessor.
    UPDATE jobctl.job_runs AS run
    SET status = 'blocked'
    WHERE run.id = ANY (runs)
        AND run.enqueued_by = SESSION_USER
        AND run.created_at = now()
        AND run.status = 'queued'
        AND EXISTS (
            SELECT FROM jobctl.job_dependencies AS dependency
            WHERE dependency.run_id = run.id
                AND dependency.state <> 'met'
        );
    GET DIAGNOSTICS written = ROW_COUNT;
    -- Fewer runs than pairs: a run waits for several or for none, or a trigger has skipped it. Then
    -- it is still queued although it must wait.
    IF written < cardinality(runs) THEN
        PERFORM jobctl.require_written('job_runs', chosen => count(*), written => 0)
        FROM jobctl.job_runs AS run
        JOIN jobctl.job_dependencies AS dependency
            ON dependency.run_id = run.id
            AND dependency.state <> 'met'
        WHERE run.id = ANY (runs)
            AND run.enqueued_by = SESSION_USER
            AND run.created_at = now()
            AND run.status = 'queued';
    END IF;
    IF NOT EXISTS (
        SELECT FROM jobctl.job_runs AS predecessor
        WHERE predecessor.id = ANY (predecessors)
            AND predecessor.traceparent IS NOT NULL
    ) THEN
        RETURN;
    END IF;
    -- A run without a trace continues that of its predecessor with the smallest id that has one.
    UPDATE jobctl.job_runs AS run
    SET traceparent = predecessor.traceparent
    FROM (
        SELECT DISTINCT ON (dependency.run_id) dependency.run_id, awaited.traceparent
        FROM jobctl.job_dependencies AS dependency
        JOIN jobctl.job_runs AS awaited ON awaited.id = dependency.after_id
        WHERE dependency.run_id = ANY (runs)
            AND awaited.traceparent IS NOT NULL
        ORDER BY dependency.run_id, awaited.id
    ) AS predecessor
    WHERE run.id = predecessor.run_id
        AND run.traceparent IS NULL
        AND run.enqueued_by = SESSION_USER
        AND run.created_at = now()
        AND run.status IN ('queued', 'blocked');
END
$$;
