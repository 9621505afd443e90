-- Claims due runs for a tick, up to `at_most`: queued or failed -> running. Each claimed run gets a
-- lease. The tick must have the claim right of its worker. Only the claim of one run by its id
-- (`only_run`) needs no right, so that `tick --run` never waits for another tick. Internal: only
-- jobctl calls it.
--
-- A lane is a queue and a priority. A full scan reads every lane from its beginning. Other claims
-- continue in some lanes, after the last run that was claimed there.
--
-- Parameters:
--   lease             seconds
--   queues            claims only from these queues; empty: from all
--   excluded_kinds    kinds of definitions whose runs are left out, like excluded_jobs and
--                     excluded_runs
--   bytes             of payload; the claim ends with the run that reaches this sum
--   free_threads      how many of the claimed runs can start at once. After that many, the claim
--                     ends before a run on its last attempt: if the worker crashed before it
--                     starts, the run would be dead without having started
--   only_run          the id of the only run to claim; NULL: any run
--   releases_right    whether to release the claim right if no more runs are due
--
-- Parameters that continue an earlier claim:
--   after_queues, after_priorities, after_run_at, after_ids: continue in these lanes, after these
--   runs; NULL: full scan
--   lane_queue, lane_priority: begin the full scan after this lane; NULL: at the first lane
--   after_definition    what limited_runs looks for. 0 or more: runs of limited definitions with a
--                       larger id, and runs with a lock of their own; NULL: only runs with a lock
--                       of their own; -1: neither
--   after_definitions, after_shares: see limited_runs
--
-- Returns a row per claimed run. If it claims none, it returns one row whose id is NULL: no run is
-- due, limits or holds stop all due runs, or the tick does not have the claim right. Each row also
-- has
--   skips_runs      whether a trigger of another program made the UPDATE skip a run
--   cut_queue, cut_priority: the last lane that the claim read, if there may be more lanes
--   skipped_job, last_definition, last_definitions, last_shares: see limited_runs
--   has_released    whether it released the claim right
--
-- Order: smaller numbers of priority first, then earlier run_at. Lanes of one priority are ordered
-- by their oldest run. The claim reads the index job_runs_waiting lane by lane, and finds each lane
-- by one probe from the lane before. So it reads neither future runs nor other queues.
--
-- A claim reads at most 1,000 lanes, which takes some milliseconds. The next claim continues after
-- them. So every lane gets its turn, but priorities order only the runs of the same 1,000 lanes.
--
-- limited_runs finds the runs of limited definitions and the runs with a lock. The scan of the
-- lanes skips these runs, and runs for other workers. Each skipped run takes time; a full scan must
-- skip all of them.
--
-- While any session holds an old snapshot, claimed runs stay in the index, so each scan from a
-- lane's beginning is longer than the one before. A tick that notices this continues after the last
-- claimed run, and does a full scan only now and then.
--
-- SKIP LOCKED: other hosts claim at the same time, and no claim waits for another. NO KEY UPDATE:
-- meanwhile, PostgreSQL can check an application's foreign key to a run. MATERIALIZED: otherwise
-- the planner may run the subquery once per candidate row of the UPDATE, and LIMIT 1 can claim
-- fifty.
CREATE OR REPLACE FUNCTION jobctl.claim_runs(
    worker text,
    tick text,
    at_most integer,
    lease float8,
    queues text[],
    excluded_jobs text[],
    excluded_kinds text[],
    excluded_runs bigint[],
    after_queues text[],
    after_priorities integer[],
    after_run_at timestamptz[],
    after_ids bigint[],
    bytes bigint,
    free_threads integer,
    lane_queue text,
    lane_priority integer,
    after_definition bigint,
    after_definitions bigint[],
    after_shares text[],
    only_run bigint,
    releases_right boolean
)
RETURNS TABLE (
    skips_runs boolean,
    cut_queue text,
    cut_priority integer,
    skipped_job text,
    last_definition bigint,
    last_definitions bigint[],
    last_shares text[],
    has_released boolean,
    id bigint,
    job_type text,
    queue text,
    priority integer,
    run_at timestamptz,
    is_limited boolean,
    payload text,
    attempt integer,
    max_attempts integer,
    uncounted_attempts integer,
    claimed_at timestamptz,
    cancel_asked boolean,
    expires_in float8,
    kind text,
    action text,
    timeout float8,
    backoff text,
    key text,
    scheduled_for text,
    after text,
    passes_results boolean,
    prints_json boolean,
    traceparent text
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET row_security = off
SET plan_cache_mode = force_generic_plan
SET random_page_cost = 1.1
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    any_pending boolean;
    any_locks boolean;
    needs_limited boolean;
    limited record;
    claimed_ids bigint[];
    -- The end of the scan of a lane: the last run that is due now. The id is the largest bigint.
    last_run_at timestamptz := now();
    last_id bigint := 9223372036854775807;
BEGIN
    IF only_run IS NOT NULL THEN
        -- The scan of the lanes begins just before this run and ends with it. If the run is not due
        -- yet, the scan ends at now(), so it does not find the run.
        SELECT
            array_agg(run.queue),
            array_agg(run.priority),
            array_agg(run.run_at),
            array_agg(run.id - 1),
            least(max(run.run_at), now()),
            max(run.id)
        INTO after_queues, after_priorities, after_run_at, after_ids, last_run_at, last_id
        FROM jobctl.job_runs AS run
        WHERE run.id = only_run;
        -- If no such run exists, read no lane: NULL would mean a full scan.
        after_queues := coalesce(after_queues, '{}');
    END IF;
    -- A tick that lingers usually finds no pending run. This check takes less time than a claim.
    any_pending := EXISTS (
        SELECT FROM jobctl.job_runs AS run
        WHERE run.status IN ('queued', 'failed')
    );
    any_locks := any_pending
        AND after_definition IS NULL
        AND EXISTS (SELECT FROM jobctl.pending_lock_runs);
    needs_limited := any_pending AND (after_definition >= 0 OR any_locks);
    -- PostgreSQL tests this condition before it calls the function, because it names no column.
    -- Without a call, `limited` gets a row of NULLs, which an IF would not give it.
    SELECT found.*
    INTO limited
    FROM jobctl.limited_runs(
        claim_runs.worker,
        at_most,
        queues,
        excluded_jobs,
        excluded_kinds,
        excluded_runs,
        after_definition,
        after_definitions,
        after_shares,
        only_run
    ) AS found
    WHERE needs_limited;
    skips_runs := false;
    IF any_pending THEN
        WITH RECURSIVE lanes AS (
            -- The row before the first lane: the last lane of the previous claim, or the smallest
            -- queue and priority. It is never due, because `oldest` is infinity.
            SELECT
                0 AS place,
                coalesce(lane_queue, '') AS queue,
                coalesce(lane_priority, -2147483648) AS priority,
                timestamptz 'infinity' AS oldest
            WHERE after_queues IS NULL
            UNION ALL
            SELECT lanes.place + 1, next_lane.queue, next_lane.priority, next_lane.run_at
            FROM lanes
            CROSS JOIN LATERAL (
                SELECT run.queue, run.priority, run.run_at
                FROM jobctl.job_runs AS run
                WHERE run.status IN ('queued', 'failed')
                    AND (run.queue, run.priority) > (
                        lanes.queue,
                        -- Skip the other priorities of a queue that this tick does not serve, so
                        -- that such a queue costs one probe.
                        CASE
                            WHEN cardinality(queues) = 0
                                OR lanes.queue = ANY (queues)
                                OR lanes.place = 0
                                THEN lanes.priority
                            ELSE 2147483647
                        END
                    )
                ORDER BY run.queue, run.priority, run.run_at
                LIMIT 1
            ) AS next_lane
            WHERE lanes.place < 1000
        ),
        -- Where the scan of each lane begins: before its first run, or after the run of the cursor.
        starts AS (
            SELECT
                lanes.queue,
                lanes.priority,
                lanes.oldest,
                timestamptz '-infinity' AS run_at,
                0::bigint AS id
            FROM lanes
            WHERE lanes.oldest <= now()
            UNION ALL
            SELECT cursor.queue, cursor.priority, cursor.run_at, cursor.run_at, cursor.id
            FROM unnest(after_queues, after_priorities, after_run_at, after_ids)
                AS cursor (queue, priority, run_at, id)
        ),
        holds AS MATERIALIZED (
            SELECT hold.scope, hold.name
            FROM jobctl.current_holds AS hold
        ),
        -- One row if the tick may claim, otherwise none.
        claim_right AS MATERIALIZED (
            SELECT
            WHERE (
                    only_run IS NOT NULL
                    OR EXISTS (
                        SELECT FROM jobctl.job_workers AS worker
                        WHERE worker.worker = claim_runs.worker
                            AND worker.claiming_tick = claim_runs.tick
                            AND worker.claiming_until > now()
                    )
                )
                AND NOT EXISTS (
                    SELECT FROM holds
                    WHERE (holds.scope, holds.name) IN (('all', ''), ('worker', claim_runs.worker))
                )
        ),
        -- The jobs whose runs the scan of the lanes skips.
        left_out AS MATERIALIZED (
            SELECT unnest(excluded_jobs) AS job_type
            UNION ALL
            SELECT definition.name
            FROM jobctl.job_definitions AS definition
            WHERE definition.is_limited OR definition.kind = ANY (excluded_kinds)
            UNION ALL
            SELECT holds.name
            FROM holds
            WHERE holds.scope = 'job'
        ),
        -- The keys of running runs that were replaced: the newer run with the key waits for the end
        -- of the running one.
        replaced AS MATERIALIZED (
            SELECT run.idempotency_key
            FROM jobctl.job_runs AS run
            WHERE run.status = 'running' AND run.key_scope = 'replaced'
        ),
        -- Here and in within_limits, the columns from priority on are the place of the run in the
        -- order of all runs.
        without_limits AS MATERIALIZED (
            SELECT
                pending.id,
                pending.is_last_attempt,
                pending.payload_bytes,
                lane.priority,
                lane.oldest,
                lane.queue,
                pending.run_at,
                pending.id AS place_id
            FROM (
                SELECT *
                FROM starts
                WHERE (cardinality(queues) = 0 OR starts.queue = ANY (queues))
                    AND starts.queue <> ALL (ARRAY(
                        SELECT holds.name
                        FROM holds
                        WHERE holds.scope = 'queue'
                    ))
                ORDER BY starts.priority, starts.oldest
            ) AS lane
            CROSS JOIN LATERAL (
                SELECT
                    run.id,
                    run.run_at,
                    run.attempts + 1 >= run.max_attempts + run.uncounted_attempts
                        AS is_last_attempt,
                    run.payload_bytes
                FROM jobctl.job_runs AS run
                WHERE run.status IN ('queued', 'failed')
                    AND run.queue = lane.queue
                    AND run.priority = lane.priority
                    AND (run.run_at, run.id) > (lane.run_at, lane.id)
                    AND (run.run_at, run.id) <= (last_run_at, last_id)
                    AND coalesce(run.expires_at > now(), true)
                    AND run.lock IS NULL
                    AND coalesce(run.worker = claim_runs.worker, true)
                    AND run.id <> ALL (excluded_runs)
                    -- `coalesce` hides the comparison from the planner. If most runs are of one
                    -- job, the planner would expect that few runs pass, and would read and sort the
                    -- whole lane. Each list is read once, into a hash table.
                    AND NOT coalesce(
                        run.job_type IN (SELECT left_out.job_type FROM left_out),
                        false
                    )
                    AND NOT coalesce(
                        run.idempotency_key IN (SELECT replaced.idempotency_key FROM replaced),
                        false
                    )
                ORDER BY run.run_at, run.id
                -- The outer limit would be enough, but without this one the planner would sort
                -- whole lanes.
                LIMIT at_most
                FOR NO KEY UPDATE SKIP LOCKED
            ) AS pending
            LIMIT CASE WHEN EXISTS (SELECT FROM claim_right) THEN at_most ELSE 0 END
        ),
        within_limits AS (
            SELECT
                startable.id,
                startable.is_last_attempt,
                startable.payload_bytes,
                startable.priority,
                startable.run_at AS oldest,
                startable.queue,
                startable.run_at,
                startable.place_id
            -- limited_runs has locked these runs, so they are still due.
            FROM unnest(
                limited.ids,
                limited.are_last_attempts,
                limited.payload_bytes,
                limited.place_priorities,
                limited.place_queues,
                limited.place_run_at,
                limited.place_ids
            ) AS startable (id, is_last_attempt, payload_bytes, priority, queue, run_at, place_id)
            WHERE EXISTS (SELECT FROM claim_right)
        ),
        candidates AS (
            SELECT * FROM without_limits
            UNION ALL
            SELECT * FROM within_limits
        ),
        ordered AS (
            SELECT
                candidate.id,
                candidate.is_last_attempt,
                row_number() OVER in_order AS place,
                sum(candidate.payload_bytes)
                    OVER (in_order ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
                    AS bytes_before
            FROM candidates AS candidate
            WINDOW in_order AS (
                ORDER BY
                    candidate.priority,
                    candidate.oldest,
                    candidate.queue,
                    candidate.run_at,
                    candidate.place_id
            )
        ),
        -- must_wait: this run, or a run before it, is on its last attempt and would wait for a
        -- thread. The claim ends before the first such run.
        chosen AS (
            SELECT
                ordered.id,
                ordered.bytes_before,
                bool_or(ordered.is_last_attempt AND ordered.place > free_threads)
                    OVER (ORDER BY ordered.place) AS must_wait
            FROM ordered
            WHERE ordered.place <= at_most
        ),
        to_claim AS MATERIALIZED (
            SELECT chosen.id
            FROM chosen
            WHERE coalesce(chosen.bytes_before, 0) < bytes
                AND NOT chosen.must_wait
        ),
        claimed AS (
            UPDATE jobctl.job_runs AS run
            SET
                status = 'running',
                attempts = run.attempts + 1,
                locked_by = claim_runs.worker,
                locked_until = now() + make_interval(secs => lease),
                started_at = now(),
                updated_at = now()
            -- The rows are locked, so their status needs no check. An array makes the planner use
            -- the index, where a join might read the whole table.
            WHERE run.id = ANY (ARRAY(SELECT to_claim.id FROM to_claim))
            RETURNING run.id
        )
        SELECT
            (SELECT array_agg(claimed.id) FROM claimed),
            (SELECT count(*) FROM to_claim) > (SELECT count(*) FROM claimed),
            -- `max` returns a row also if no lane has this place.
            max(lanes.queue),
            max(lanes.priority)
        INTO claimed_ids, skips_runs, cut_queue, cut_priority
        FROM lanes
        WHERE lanes.place = 1000;
    END IF;
    IF limited.ids && claimed_ids THEN
        -- Counts started runs of limited definitions against their rates, and stores the share that
        -- was claimed last. limited_runs has locked these definitions.
        UPDATE jobctl.job_definitions AS definition
        SET
            rate_next_at = greatest(definition.rate_next_at, now())
                + started.runs * definition.rate_interval,
            last_share = started.last_share
        FROM (
            SELECT
                run.job_type,
                count(*) AS runs,
                (array_agg(run.share ORDER BY array_position(limited.ids, run.id) DESC))[1]
                    AS last_share
            FROM jobctl.job_runs AS run
            WHERE run.id = ANY (limited.ids)
                AND run.id = ANY (claimed_ids)
            GROUP BY run.job_type
        ) AS started
        WHERE definition.name = started.job_type
            AND definition.is_limited
            -- Leave out definitions in which nothing changes.
            AND (
                definition.rate IS NOT NULL
                OR definition.last_share IS DISTINCT FROM started.last_share
            );
        INSERT INTO jobctl.job_share_rates AS used (definition_id, share, next_at)
        SELECT
            definition.id,
            coalesce(run.share, ''),
            now() + count(*) * definition.share_interval
        FROM jobctl.job_runs AS run
        JOIN jobctl.job_definitions AS definition ON definition.name = run.job_type
        WHERE run.id = ANY (limited.ids)
            AND run.id = ANY (claimed_ids)
            AND definition.rate_per_share IS NOT NULL
        GROUP BY definition.id, coalesce(run.share, ''), definition.share_interval
        ON CONFLICT (definition_id, share) DO UPDATE SET
            next_at = excluded.next_at + CASE
                -- Ignore a later time: it was written while the database's clock was ahead.
                WHEN used.next_at BETWEEN now() AND now() + (
                    SELECT definition.most_at_once_per_share * definition.share_interval
                    FROM jobctl.job_definitions AS definition
                    WHERE definition.id = used.definition_id
                )
                    THEN used.next_at - now()
                ELSE interval '0'
            END;
        IF FOUND THEN
            -- Rows whose time has passed limit nothing. A claim deletes more of them than it
            -- inserts, so that their number stays small.
            DELETE FROM jobctl.job_share_rates AS unused
            WHERE (unused.definition_id, unused.share) IN (
                SELECT old.definition_id, old.share
                FROM jobctl.job_definitions AS definition
                JOIN jobctl.job_share_rates AS old
                    ON old.definition_id = definition.id
                    AND old.next_at < now()
                WHERE definition.name = ANY (ARRAY(
                    SELECT run.job_type
                    FROM jobctl.job_runs AS run
                    WHERE run.id = ANY (claimed_ids)
                ))
                LIMIT 2 * at_most
            );
        END IF;
    END IF;
    -- If the claim took all runs that it might take, reached a limit of what it reads, or skipped a
    -- run, more runs may be due.
    has_released := releases_right
        AND coalesce(cardinality(claimed_ids), 0) < at_most
        AND NOT skips_runs
        AND num_nonnulls(cut_queue, limited.last_definition, limited.last_definitions) = 0;
    IF has_released THEN
        PERFORM jobctl.release_right(claim_runs.worker, claim_runs.tick);
    END IF;
    skipped_job := limited.skipped_job;
    last_definition := limited.last_definition;
    last_definitions := limited.last_definitions;
    last_shares := limited.last_shares;
    IF claimed_ids IS NULL THEN
        RETURN NEXT;
        RETURN;
    END IF;
    RETURN QUERY
        SELECT
            claim_runs.skips_runs,
            claim_runs.cut_queue,
            claim_runs.cut_priority,
            claim_runs.skipped_job,
            claim_runs.last_definition,
            claim_runs.last_definitions,
            claim_runs.last_shares,
            claim_runs.has_released,
            run.id,
            run.job_type,
            run.queue,
            run.priority,
            run.run_at,
            coalesce(run.id = ANY (limited.ids), false),
            run.payload::text,
            run.attempts,
            run.max_attempts + run.uncounted_attempts,
            run.uncounted_attempts,
            run.started_at,
            run.cancel_requested_at IS NOT NULL,
            extract(epoch FROM run.expires_at - now())::float8,
            definition.kind,
            -- Only in one row per job, because a job may have thousands of runs.
            CASE
                WHEN row_number() OVER (PARTITION BY run.job_type ORDER BY run.id) = 1
                    THEN definition.action::text
            END,
            extract(epoch FROM coalesce(run.timeout, definition.timeout))::float8,
            run.backoff,
            -- Not a live key: several runs use it one after the other, and each has effects of its
            -- own.
            CASE WHEN run.key_scope = 'retained' THEN run.idempotency_key END,
            to_char(run.scheduled_for AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
            predecessors.after,
            coalesce(definition.pass_result, false) AND predecessors.after IS NOT NULL,
            coalesce(definition.result = 'json', false),
            run.traceparent
        FROM jobctl.job_runs AS run
        LEFT JOIN jobctl.job_definitions AS definition ON definition.name = run.job_type
        CROSS JOIN LATERAL (
            SELECT string_agg(dependency.after_id::text, ',' ORDER BY dependency.after_id) AS after
            FROM jobctl.job_dependencies AS dependency
            WHERE dependency.run_id = run.id
        ) AS predecessors
        WHERE run.id = ANY (claimed_ids)
        ORDER BY run.priority, run.run_at, run.id;
END
$$;
