CREATE SCHEMA jobctl;
CREATE DOMAIN jobctl.caller AS name
	CONSTRAINT caller_is_current_user CHECK (((VALUE = CURRENT_USER) IS TRUE));
CREATE FUNCTION jobctl.application_schedule_is_due() RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM jobctl.scheduling_jobs AS job
        CROSS JOIN LATERAL (
            SELECT schedule.due_at
            FROM jobctl.job_schedules AS schedule
            WHERE schedule.definition_id = job.id
            ORDER BY schedule.due_at
            LIMIT 1
        ) AS first
        WHERE first.due_at <= now()
    );
END
$$;
CREATE FUNCTION jobctl.attempt_texts(run bigint, attempt integer, OUT error text, OUT last_line text) RETURNS record
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF has_column_privilege('jobctl.job_attempts', 'output', 'SELECT') THEN
        SELECT left(ended.error, 10000), jobctl.last_line(ended.output)
        INTO error, last_line
        FROM jobctl.job_attempts AS ended
        WHERE ended.run_id = attempt_texts.run
            AND ended.attempt = attempt_texts.attempt;
    END IF;
END
$$;
CREATE FUNCTION jobctl.claim_runs(worker text, tick text, at_most integer, lease double precision, queues text[], excluded_jobs text[], excluded_kinds text[], excluded_runs bigint[], after_queues text[], after_priorities integer[], after_run_at timestamp with time zone[], after_ids bigint[], bytes bigint, free_threads integer, lane_queue text, lane_priority integer, after_definition bigint, after_definitions bigint[], after_shares text[], only_run bigint, releases_right boolean) RETURNS TABLE(skips_runs boolean, cut_queue text, cut_priority integer, skipped_job text, last_definition bigint, last_definitions bigint[], last_shares text[], has_released boolean, id bigint, job_type text, queue text, priority integer, run_at timestamp with time zone, is_limited boolean, payload text, attempt integer, max_attempts integer, uncounted_attempts integer, claimed_at timestamp with time zone, cancel_asked boolean, expires_in double precision, kind text, action text, timeout double precision, backoff text, key text, scheduled_for text, after text, passes_results boolean, prints_json boolean, traceparent text)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET random_page_cost TO '1.1'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
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
CREATE FUNCTION jobctl.count_attempts(runs bigint[], job_types text[], statuses text[], outcomes text[], run_times double precision[], wait_times double precision[]) RETURNS void
    LANGUAGE plpgsql STRICT SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    AS $$
DECLARE
    counted record;
    -- The newest row of the job and the day that no other session has locked.
    target record;
    has_succeeded boolean;
BEGIN
    FOR counted IN
        SELECT
            ended.job_type,
            count(*) FILTER (WHERE ended.status = 'succeeded') AS succeeded,
            count(*) FILTER (WHERE ended.status = 'dead') AS dead,
            count(*) FILTER (WHERE ended.outcome = 'expired') AS expired,
            count(*) FILTER (WHERE ended.outcome = 'dropped') AS dropped,
            count(*) FILTER (WHERE ended.outcome IN ('failed', 'lease_expired'))
                AS failed_attempts,
            max(ended.run) FILTER (WHERE ended.outcome IN ('failed', 'lease_expired'))
                AS failed_run,
            count(*) FILTER (
                WHERE ended.outcome IN ('failed', 'lease_expired')
                    AND ended.status IN ('queued', 'failed')
            ) AS retried_attempts,
            -- Limit each time to 0 to 1e9 seconds: a worker may pass any number, and the sum must
            -- not overflow.
            coalesce(
                sum(least(greatest(ended.run_time, 0), 1e9))
                    FILTER (WHERE ended.run_time IS NOT NULL),
                0
            ) AS run_time_seconds,
            coalesce(
                sum(least(greatest(ended.wait_time, 0), 1e9))
                    FILTER (WHERE ended.wait_time IS NOT NULL),
                0
            ) AS wait_seconds,
            ARRAY[
                count(*) FILTER (WHERE ended.wait_time <= 1),
                count(*) FILTER (WHERE ended.wait_time <= 10),
                count(*) FILTER (WHERE ended.wait_time <= 30),
                count(*) FILTER (WHERE ended.wait_time <= 60),
                count(*) FILTER (WHERE ended.wait_time <= 300),
                count(*) FILTER (WHERE ended.wait_time <= 3600),
                count(ended.wait_time)
            ] AS waits,
            -- The attempts of a job ended at the same time, so none is the last. Store the most
            -- important end: a death, then a success, then a failure. Runs that expired or were
            -- dropped leave last_status as it is.
            CASE
                WHEN bool_or(ended.status = 'dead') THEN 'dead'
                WHEN bool_or(ended.status = 'succeeded') THEN 'succeeded'
                WHEN bool_or(ended.outcome IN ('failed', 'lease_expired')) THEN 'failed'
                WHEN bool_or(ended.status = 'cancelled' AND ended.outcome <> 'expired')
                    THEN 'cancelled'
            END AS last_status
        FROM unnest(runs, job_types, statuses, outcomes, run_times, wait_times)
            AS ended (run, job_type, status, outcome, run_time, wait_time)
        GROUP BY ended.job_type
    LOOP
        -- Skips rows that other ticks have locked, so that no tick waits here.
        SELECT figures.id, figures.part, figures.writes, figures.failing_since INTO target
        FROM jobctl.job_figures AS figures
        WHERE figures.job_type = counted.job_type
            AND figures.day = (now() AT TIME ZONE 'UTC')::date
        ORDER BY figures.part DESC
        LIMIT 1
        FOR NO KEY UPDATE SKIP LOCKED;
        -- Adds a row if all are locked. Also if the row has had 1,000 writes: while a session holds
        -- an old snapshot, each write leaves a row version that the next one must step over.
        IF NOT FOUND OR target.writes >= 1000 THEN
            INSERT INTO jobctl.job_figures (job_type, part)
            VALUES (counted.job_type, coalesce(target.part, 0) + 1)
            RETURNING id, part, writes, failing_since INTO target;
        END IF;
        -- Whether the job has succeeded since failing_since: another row of the job may have that
        -- success. Then the failures of this row are counted from the start again.
        has_succeeded := counted.failed_attempts > 0
            AND target.failing_since IS NOT NULL
            AND EXISTS (
                SELECT FROM jobctl.job_figures AS figures
                WHERE figures.job_type = counted.job_type
                    AND figures.day >= (target.failing_since AT TIME ZONE 'UTC')::date
                    AND figures.last_succeeded_at >= target.failing_since
            );
        UPDATE jobctl.job_figures AS figures
        SET
            writes = figures.writes + 1,
            succeeded = figures.succeeded + counted.succeeded,
            dead = figures.dead + counted.dead,
            expired = figures.expired + counted.expired,
            dropped = figures.dropped + counted.dropped,
            failed_attempts = figures.failed_attempts + counted.failed_attempts,
            retried_attempts = figures.retried_attempts + counted.retried_attempts,
            run_time_seconds = figures.run_time_seconds + counted.run_time_seconds,
            wait_seconds = figures.wait_seconds + counted.wait_seconds,
            waits = ARRAY(
                SELECT bucket.before + bucket.more
                FROM unnest(figures.waits, counted.waits) AS bucket (before, more)
            ),
            last_ended_at = CASE
                WHEN counted.last_status IS NULL THEN figures.last_ended_at
                ELSE now()
            END,
            last_status = coalesce(counted.last_status, figures.last_status),
            last_succeeded_at = CASE
                WHEN counted.succeeded = 0 THEN figures.last_succeeded_at
                ELSE now()
            END,
            failures_in_row = CASE
                WHEN counted.succeeded > 0 THEN 0
                WHEN has_succeeded THEN counted.failed_attempts
                ELSE figures.failures_in_row + counted.failed_attempts
            END,
            failing_since = CASE
                WHEN counted.succeeded > 0 THEN NULL
                WHEN counted.failed_attempts = 0 THEN figures.failing_since
                WHEN has_succeeded THEN now()
                ELSE coalesce(figures.failing_since, now())
            END,
            failing_run = coalesce(counted.failed_run, figures.failing_run)
        WHERE figures.id = target.id;
    END LOOP;
EXCEPTION
    -- A result matters more than its figures. So it is also recorded if the figures take longer
    -- than a statement may, which raises QUERY_CANCELED.
    WHEN OTHERS OR QUERY_CANCELED THEN
        RAISE WARNING 'jobctl: figures are not counted: %', SQLERRM;
END
$$;
CREATE FUNCTION jobctl.decide_followers(followers bigint[], OUT decides boolean, OUT followed bigint[]) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
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
CREATE TABLE jobctl.job_definitions (
    id bigint NOT NULL,
    name text NOT NULL,
    kind text NOT NULL,
    action jsonb NOT NULL,
    action_bytes integer GENERATED ALWAYS AS (octet_length((action)::text)) STORED,
    payload jsonb DEFAULT '{}'::jsonb NOT NULL,
    payload_bytes integer GENERATED ALWAYS AS (octet_length((payload)::text)) STORED,
    schedule text,
    time_zone text DEFAULT 'UTC'::text NOT NULL,
    catch_up text DEFAULT 'one'::text NOT NULL,
    most_fires integer GENERATED ALWAYS AS (
CASE
    WHEN (catch_up = 'all'::text) THEN 100
    WHEN (catch_up ~~ 'all:%'::text) THEN (substr(catch_up, 5))::integer
    ELSE 1
END) STORED,
    each_worker boolean DEFAULT false NOT NULL,
    workers text[],
    overlap text DEFAULT 'skip'::text NOT NULL,
    max_running integer,
    most_running integer GENERATED ALWAYS AS (LEAST(max_running,
CASE
    WHEN (overlap = 'queue'::text) THEN 1
    ELSE NULL::integer
END)) STORED,
    rate text,
    rate_interval interval GENERATED ALWAYS AS (('00:00:01'::interval * (((rtrim(split_part(rate, '/'::text, 2), 'smhd'::text))::double precision * (
CASE "right"(rate, 1)
    WHEN 's'::text THEN 1
    WHEN 'm'::text THEN 60
    WHEN 'h'::text THEN 3600
    ELSE 86400
END)::double precision) / (split_part(rate, '/'::text, 1))::double precision))) STORED,
    burst integer,
    most_at_once integer GENERATED ALWAYS AS (COALESCE(burst, (split_part(rate, '/'::text, 1))::integer)) STORED,
    rate_next_at timestamp with time zone,
    max_running_per_share integer,
    rate_per_share text,
    share_interval interval GENERATED ALWAYS AS (('00:00:01'::interval * (((rtrim(split_part(rate_per_share, '/'::text, 2), 'smhd'::text))::double precision * (
CASE "right"(rate_per_share, 1)
    WHEN 's'::text THEN 1
    WHEN 'm'::text THEN 60
    WHEN 'h'::text THEN 3600
    ELSE 86400
END)::double precision) / (split_part(rate_per_share, '/'::text, 1))::double precision))) STORED,
    most_at_once_per_share integer GENERATED ALWAYS AS ((split_part(rate_per_share, '/'::text, 1))::integer) STORED,
    last_share text COLLATE pg_catalog."C",
    lock jsonb,
    lock_name text GENERATED ALWAYS AS (COALESCE((lock ->> 'name'::text), (lock #>> '{}'::text[]))) STORED,
    lock_most integer GENERATED ALWAYS AS (
CASE
    WHEN (jsonb_typeof(lock) = 'object'::text) THEN ((lock ->> 'most'::text))::integer
    WHEN (lock IS NOT NULL) THEN 1
    ELSE NULL::integer
END) STORED,
    is_limited boolean GENERATED ALWAYS AS (((max_running IS NOT NULL) OR (overlap = 'queue'::text) OR (rate IS NOT NULL) OR (max_running_per_share IS NOT NULL) OR (rate_per_share IS NOT NULL) OR (lock IS NOT NULL))) STORED NOT NULL,
    max_waiting integer,
    when_full text DEFAULT 'refuse'::text NOT NULL,
    snooze text DEFAULT 'run'::text NOT NULL,
    pass_result boolean DEFAULT false NOT NULL,
    result text DEFAULT 'text'::text NOT NULL,
    max_attempts integer DEFAULT 10 NOT NULL,
    timeout interval,
    max_age interval,
    max_lag interval,
    alert_after integer DEFAULT 3 NOT NULL,
    usual text,
    usual_least interval GENERATED ALWAYS AS ((('00:00:01'::interval * (rtrim(split_part(NULLIF(usual, 'off'::text), '..'::text, 1), 'smhd'::text))::double precision) * (
CASE "right"(split_part(usual, '..'::text, 1), 1)
    WHEN 's'::text THEN 1
    WHEN 'm'::text THEN 60
    WHEN 'h'::text THEN 3600
    ELSE 86400
END)::double precision)) STORED,
    usual_most interval GENERATED ALWAYS AS ((('00:00:01'::interval * (rtrim(split_part(NULLIF(usual, 'off'::text), '..'::text, 2), 'smhd'::text))::double precision) * (
CASE "right"(usual, 1)
    WHEN 's'::text THEN 1
    WHEN 'm'::text THEN 60
    WHEN 'h'::text THEN 3600
    ELSE 86400
END)::double precision)) STORED,
    expires interval,
    keep interval,
    keep_dead interval,
    backoff text DEFAULT 'exponential:1m..30m'::text NOT NULL,
    priority integer DEFAULT 0 NOT NULL,
    queue text DEFAULT 'default'::text NOT NULL,
    spread interval DEFAULT '00:00:00'::interval NOT NULL,
    on_dead text,
    on_success text,
    on_end text,
    has_hooks boolean GENERATED ALWAYS AS ((num_nonnulls(on_dead, on_success, on_end) > 0)) STORED NOT NULL,
    after text[],
    "when" text DEFAULT 'success'::text NOT NULL,
    enqueuers text[],
    enqueue_may_set text[] DEFAULT '{}'::text[] NOT NULL,
    file text DEFAULT ''::text NOT NULL,
    enabled boolean DEFAULT true NOT NULL,
    paused_at timestamp with time zone,
    resumed_at timestamp with time zone,
    next_run_at timestamp with time zone,
    put_off_until timestamp with time zone,
    skipped_fires bigint DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT a_follower_has_no_schedule CHECK (((schedule IS NULL) OR (after IS NULL))),
    CONSTRAINT action_is_bounded CHECK ((action_bytes <= (4 * 262144))),
    CONSTRAINT after_has_jobs CHECK (((cardinality(after) > 0) AND (array_position(after, NULL::text) IS NULL))),
    CONSTRAINT alert_after_in_range CHECK (((alert_after >= 0) AND (alert_after <= 1000))),
    CONSTRAINT backoff_is_known CHECK ((backoff ~ '^(fixed|exponential|polynomial|list):[0-9a-z., ]+$'::text)),
    CONSTRAINT burst_in_range CHECK (((burst IS NULL) OR ((burst >= 1) AND (burst <= 999999) AND (rate IS NOT NULL)))),
    CONSTRAINT catch_up_is_known CHECK ((catch_up ~ '^(skip|one|all(:[1-9][0-9]{0,3})?)$'::text)),
    CONSTRAINT enqueue_may_set_is_known CHECK ((enqueue_may_set <@ ARRAY['queue'::text, 'priority'::text, 'timeout'::text, 'max_attempts'::text, 'backoff'::text])),
    CONSTRAINT enqueuers_are_names CHECK ((array_position(enqueuers, NULL::text) IS NULL)),
    CONSTRAINT expires_is_positive CHECK ((expires > '00:00:00'::interval)),
    CONSTRAINT file_is_short_and_plain CHECK ((file ~ '^([A-Za-z0-9_][A-Za-z0-9_.:-]{0,62})?$'::text)),
    CONSTRAINT keep_dead_is_at_most_a_century CHECK (((keep_dead >= '00:00:00'::interval) AND (keep_dead <= '36500 days'::interval))),
    CONSTRAINT keep_is_at_most_a_century CHECK (((keep >= '00:00:00'::interval) AND (keep <= '36500 days'::interval))),
    CONSTRAINT kind_is_known CHECK ((kind = ANY (ARRAY['shell'::text, 'http'::text]))),
    CONSTRAINT lock_is_known CHECK (((lock IS NULL) OR (jsonb_typeof(lock) = 'string'::text) OR COALESCE(((jsonb_typeof((lock -> 'name'::text)) = 'string'::text) AND ((lock ->> 'most'::text) ~ '^[1-9][0-9]{0,5}$'::text)), false))),
    CONSTRAINT max_age_is_positive CHECK ((max_age > '00:00:00'::interval)),
    CONSTRAINT max_attempts_in_range CHECK (((max_attempts >= 1) AND (max_attempts <= 1000))),
    CONSTRAINT max_lag_is_positive CHECK ((max_lag > '00:00:00'::interval)),
    CONSTRAINT max_running_is_positive CHECK ((max_running > 0)),
    CONSTRAINT max_running_per_share_is_positive CHECK ((max_running_per_share > 0)),
    CONSTRAINT max_waiting_in_range CHECK (((max_waiting >= 1) AND (max_waiting <= 100000))),
    CONSTRAINT name_is_not_built_in CHECK ((name <> ALL (ARRAY['shell'::text, 'http'::text]))),
    CONSTRAINT name_is_short_and_plain CHECK ((name ~ '^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,62}$'::text)),
    CONSTRAINT next_run_at_is_a_date CHECK (((next_run_at >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (next_run_at < '10000-01-01 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT only_a_schedule_has_a_next_run CHECK (((schedule IS NOT NULL) OR (next_run_at IS NULL))),
    CONSTRAINT overlap_is_known CHECK ((overlap = ANY (ARRAY['allow'::text, 'skip'::text, 'queue'::text]))),
    CONSTRAINT payload_is_bounded CHECK (((pg_column_size(payload) <= (8 * 262144)) AND (payload_bytes <= (64 * 262144)))),
    CONSTRAINT queue_is_short_and_plain CHECK ((queue ~ '^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,62}$'::text)),
    CONSTRAINT rate_is_known CHECK ((rate ~ '^[1-9][0-9]{0,5}/[1-9][0-9]{0,5}[smhd]$'::text)),
    CONSTRAINT rate_per_share_is_known CHECK ((rate_per_share ~ '^[1-9][0-9]{0,5}/[1-9][0-9]{0,5}[smhd]$'::text)),
    CONSTRAINT result_is_known CHECK ((result = ANY (ARRAY['text'::text, 'json'::text]))),
    CONSTRAINT snooze_is_known CHECK ((snooze = ANY (ARRAY['run'::text, 'job'::text]))),
    CONSTRAINT spread_is_at_most_a_day CHECK (((spread >= '00:00:00'::interval) AND (spread <= '1 day'::interval))),
    CONSTRAINT timeout_is_positive CHECK ((timeout > '00:00:00'::interval)),
    CONSTRAINT times_are_dates CHECK (((LEAST(paused_at, resumed_at, put_off_until, rate_next_at, created_at, updated_at) >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (GREATEST(paused_at, resumed_at, put_off_until, rate_next_at, created_at, updated_at) < '10000-01-01 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT usual_is_known CHECK ((usual ~ '^(off|[1-9][0-9]{0,5}[smhd][.][.][1-9][0-9]{0,5}[smhd])$'::text)),
    CONSTRAINT when_full_is_known CHECK ((when_full = ANY (ARRAY['refuse'::text, 'drop_new'::text, 'drop_oldest'::text]))),
    CONSTRAINT when_is_known CHECK (("when" = ANY (ARRAY['success'::text, 'any_end'::text, 'or_cancel'::text])))
);
CREATE FUNCTION jobctl.definition_keys(definition jobctl.job_definitions) RETURNS jsonb
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT CASE
        -- The file calls the command `shell`. Any program may insert a definition, so an action may
        -- be any JSON, also without a command.
        WHEN definition.kind = 'shell' AND jsonb_typeof(definition.action) = 'object'
            THEN definition.action - 'command'
                || jsonb_build_object('shell', definition.action -> 'command')
        ELSE jsonb_build_object(definition.kind, definition.action)
    END || jsonb_build_object(
        'payload', definition.payload,
        'schedule', definition.schedule,
        'time_zone', definition.time_zone,
        'catch_up', definition.catch_up,
        'each_worker', definition.each_worker,
        'workers', definition.workers,
        'overlap', definition.overlap,
        'max_running', definition.max_running,
        'rate', definition.rate,
        'burst', definition.burst,
        'max_running_per_share', definition.max_running_per_share,
        'rate_per_share', definition.rate_per_share,
        'lock', definition.lock,
        'max_waiting', definition.max_waiting,
        'when_full', definition.when_full,
        'snooze', definition.snooze,
        'pass_result', definition.pass_result,
        'result', definition.result,
        'max_attempts', definition.max_attempts,
        'timeout', extract(epoch FROM definition.timeout),
        'max_age', extract(epoch FROM definition.max_age),
        'max_lag', extract(epoch FROM definition.max_lag),
        'alert_after', definition.alert_after,
        'usual', definition.usual,
        'expires', extract(epoch FROM definition.expires),
        'keep', extract(epoch FROM definition.keep),
        'keep_dead', extract(epoch FROM definition.keep_dead),
        'backoff', definition.backoff,
        'priority', definition.priority,
        'queue', definition.queue,
        'spread', extract(epoch FROM definition.spread),
        'on_dead', definition.on_dead,
        'on_success', definition.on_success,
        'on_end', definition.on_end,
        'after', definition.after,
        'when', definition.when,
        'file', nullif(definition.file, ''),
        'enqueuers', definition.enqueuers,
        'enqueue_may_set', definition.enqueue_may_set,
        'enabled', definition.enabled
    )
$$;
CREATE FUNCTION jobctl.drop_oldest(job text, most integer) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    AS $$
BEGIN
    PERFORM jobctl.end_runs('dropped', ARRAY(
        SELECT oldest.id
        FROM jobctl.job_runs AS oldest
        WHERE oldest.id = ANY (ARRAY(
            -- All waiting runs but the `most` newest.
            SELECT waiting.id
            FROM jobctl.waiting_runs(job, NULL) AS waiting (id)
            ORDER BY waiting.id DESC
            OFFSET most
        ))
            AND oldest.status IN ('blocked', 'queued', 'failed')
        ORDER BY oldest.id
        LIMIT 2
        FOR NO KEY UPDATE SKIP LOCKED
    ));
EXCEPTION WHEN integrity_constraint_violation THEN
    -- Raise the error without its DETAIL, which shows the row with its payload to the caller and in
    -- the server's log.
    RAISE EXCEPTION USING ERRCODE = SQLSTATE, MESSAGE = SQLERRM;
END
$$;
CREATE FUNCTION jobctl.effect_result(key text, caller jobctl.caller DEFAULT CURRENT_USER) RETURNS text
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    AS $$
DECLARE
    recorded record;
BEGIN
    SELECT effect.recorded_by, effect.result INTO recorded
    FROM jobctl.job_effects AS effect
    WHERE effect.key = effect_result.key;
    IF FOUND AND jobctl.may_settle(caller, recorded.recorded_by) IS NOT TRUE THEN
        RAISE EXCEPTION 'effect `%` was recorded by another role; an operator can read it', key
            USING ERRCODE = '42501';
    END IF;
    RETURN recorded.result;
END
$$;
CREATE FUNCTION jobctl.end_runs(way text, runs bigint[], workers text[] DEFAULT NULL::text[], attempt_numbers integer[] DEFAULT NULL::integer[], claim_times timestamp with time zone[] DEFAULT NULL::timestamp with time zone[], next_statuses text[] DEFAULT NULL::text[], next_attempt_in double precision[] DEFAULT NULL::double precision[], outcomes text[] DEFAULT NULL::text[], error_types text[] DEFAULT NULL::text[], errors text[] DEFAULT NULL::text[], details text[] DEFAULT NULL::text[], exit_codes integer[] DEFAULT NULL::integer[], signals integer[] DEFAULT NULL::integer[], http_statuses integer[] DEFAULT NULL::integer[], outputs text[] DEFAULT NULL::text[], output_bytes bigint[] DEFAULT NULL::bigint[], are_truncated boolean[] DEFAULT NULL::boolean[], started_ago double precision[] DEFAULT NULL::double precision[], ended_ago double precision[] DEFAULT NULL::double precision[], OUT ids bigint[], OUT attempts integer[], OUT claimed_at timestamp with time zone[], OUT statuses text[], OUT expires_first boolean[], OUT followed bigint[], OUT queues_runs boolean) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    jobs text[];
    counted_statuses text[];
    counted_outcomes text[];
    run_times float8[];
    wait_times float8[];
    -- The runs that have ended, and those that wait because their attempt asked for a later one.
    finals bigint[];
    snoozed bigint[];
    -- Whether the UPDATE has skipped a run.
    is_skipped boolean;
BEGIN
    -- The given runs whose claim or status fits, locked, with the values to write.
    WITH matched AS (
        SELECT
            given.id,
            given.worker,
            given.attempt_number,
            given.claim_time,
            coalesce(
                given.status,
                CASE way
                    WHEN 'lost' THEN 'failed'
                    WHEN 'release' THEN 'queued'
                    WHEN 'unreadable' THEN 'dead'
                    ELSE 'cancelled'
                END
            ) AS status,
            given.next_attempt_in,
            CASE way WHEN 'lost' THEN 'lease_expired' ELSE given.outcome END AS outcome,
            CASE way
                WHEN 'lost' THEN 'lease_expired'
                WHEN 'unreadable' THEN 'bad_payload'
                WHEN 'result' THEN given.error_type
                WHEN 'release' THEN NULL
                WHEN 'cancel' THEN NULL
                ELSE way
            END AS error_type,
            CASE way
                WHEN 'expired' THEN 'expired: it did not start in time'
                WHEN 'dropped' THEN 'dropped: the definition was full'
                ELSE given.error
            END AS error,
            given.detail,
            given.exit_code,
            given.signal,
            given.http_status,
            given.output,
            coalesce(given.output_bytes, octet_length(given.output), 0)
                AS output_bytes,
            coalesce(given.is_truncated, given.output IS NOT NULL) AS is_truncated,
            given.started_ago,
            coalesce(given.ended_ago, 0) AS ended_ago
        FROM unnest(
            runs,
            workers,
            attempt_numbers,
            claim_times,
            next_statuses,
            next_attempt_in,
            outcomes,
            error_types,
            errors,
            details,
            exit_codes,
            signals,
            http_statuses,
            outputs,
            output_bytes,
            are_truncated,
            started_ago,
            ended_ago
        ) AS given (
            id,
            worker,
            attempt_number,
            claim_time,
            status,
            next_attempt_in,
            outcome,
            error_type,
            error,
            detail,
            exit_code,
            signal,
            http_status,
            output,
            output_bytes,
            is_truncated,
            started_ago,
            ended_ago
        )
        JOIN jobctl.job_runs AS run
            ON run.id = given.id
        WHERE run.id = ANY (runs)
            -- A CASE keeps the planner from the index job_runs_running: while any session holds an
            -- old snapshot, that index keeps all runs of the worker since then.
            AND CASE
                WHEN way IN ('result', 'lost', 'release')
                    THEN run.status = 'running'
                        AND run.locked_by = given.worker
                        AND run.attempts = given.attempt_number
                        AND run.started_at IS NOT DISTINCT FROM given.claim_time
                        -- A worker that can't update a locked row stores its lease in
                        -- job_locked_runs, but only before the old lease ends. This snapshot is
                        -- later than now(), so it contains every lease that was stored in time.
                        -- If the answer arrives after the end of the old lease, the worker has
                        -- stopped the job, see src/execute/stop.rs.
                        AND (
                            way <> 'lost'
                            OR run.locked_until < now()
                                AND EXISTS (
                                    SELECT FROM jobctl.leases AS lease
                                    WHERE lease.id = run.id
                                        AND lease.is_lost
                                )
                        )
                WHEN way = 'expired'
                    THEN run.status IN ('queued', 'failed') AND run.expires_at <= now()
                WHEN way = 'unreadable'
                    THEN run.status IN ('queued', 'failed') AND run.run_at <= now()
                WHEN way = 'predecessor' THEN run.status = 'blocked'
                WHEN way IN ('dropped', 'cancel')
                    THEN run.status IN ('blocked', 'queued', 'failed')
            END
        -- The rows stay locked, so only a trigger of another program can make the UPDATE skip one,
        -- see require_written.
        FOR NO KEY UPDATE OF run
    ),
    changed AS (
        UPDATE jobctl.job_runs AS run
        SET
            (
                status,
                run_at,
                attempts,
                uncounted_attempts,
                snoozed_attempts,
                locked_by,
                locked_until,
                live_output,
                cancel_requested_at,
                last_error,
                error_type,
                failed_at,
                finished_at,
                updated_at
            ) = (
                SELECT
                    next.status,
                    -- A run that ends keeps the time at which it was due.
                    CASE
                        WHEN next.status IN ('queued', 'failed') AND way <> 'release'
                            THEN now() + make_interval(secs => matched.next_attempt_in)
                        ELSE run.run_at
                    END,
                    run.attempts - (way = 'release')::integer,
                    run.uncounted_attempts + attempt.uncounted,
                    run.snoozed_attempts
                        + CASE matched.outcome WHEN 'snoozed' THEN attempt.uncounted ELSE 0 END,
                    -- locked_by, locked_until, live_output
                    NULL,
                    NULL::timestamptz,
                    NULL,
                    CASE way
                        WHEN 'cancel' THEN coalesce(run.cancel_requested_at, now())
                        ELSE run.cancel_requested_at
                    END,
                    coalesce(matched.error, run.last_error),
                    coalesce(matched.error_type, run.error_type),
                    CASE
                        -- A snooze that ends its run, because no attempt is left, is a failure.
                        WHEN matched.outcome IN ('failed', 'lease_expired')
                            OR (matched.outcome = 'snoozed' AND next.status = 'dead')
                            OR way = 'unreadable'
                            THEN now()
                        ELSE run.failed_at
                    END,
                    CASE WHEN next.status IN ('succeeded', 'dead', 'cancelled') THEN now() END,
                    now()
                FROM (
                    -- 1: this attempt does not count towards max_attempts. 0: it counts. At most
                    -- 100 of each kind do not, so that no run goes on forever.
                    SELECT CASE matched.outcome
                        WHEN 'snoozed' THEN (run.snoozed_attempts < 100)::integer
                        WHEN 'interrupted'
                            THEN (run.uncounted_attempts - run.snoozed_attempts < 100)::integer
                        ELSE 0
                    END AS uncounted
                ) AS attempt
                CROSS JOIN LATERAL (
                    SELECT CASE
                        WHEN matched.status NOT IN ('queued', 'failed') THEN matched.status
                        WHEN run.cancel_requested_at IS NOT NULL OR run.key_scope = 'replaced'
                            THEN 'cancelled'
                        WHEN way <> 'release'
                            AND run.attempts
                                >= run.max_attempts + run.uncounted_attempts + attempt.uncounted
                            THEN 'dead'
                        ELSE matched.status
                    END AS status
                ) AS next
            )
        FROM matched
        -- Not also `run.id = ANY (runs)`, which would read the array for each run.
        WHERE run.id = matched.id
        RETURNING
            run.id,
            run.job_type,
            run.status,
            CASE
                -- A snooze that ended its run is a failure, see failed_at above.
                WHEN matched.outcome = 'snoozed' AND run.failed_at = now() THEN 'failed'
                ELSE matched.outcome
            END AS outcome,
            run.finished_at IS NOT NULL AS is_final,
            run.expires_at <= run.run_at AS expires_first,
            -- Only a run that ended still has the run_at for which it waited.
            greatest(0, date_part('epoch', run.started_at - run.run_at)) AS waited,
            matched.worker,
            matched.attempt_number,
            matched.claim_time,
            matched.error_type,
            coalesce(matched.detail, matched.error) AS error,
            matched.exit_code,
            matched.signal,
            matched.http_status,
            matched.output,
            matched.output_bytes,
            matched.is_truncated,
            matched.started_ago,
            matched.ended_ago
    ),
    history AS (
        INSERT INTO jobctl.job_attempts (
            run_id,
            attempt,
            worker,
            started_at,
            finished_at,
            outcome,
            error_type,
            error,
            cause,
            incident,
            exit_code,
            signal,
            http_status,
            output,
            output_bytes,
            output_truncated
        )
        SELECT
            changed.id,
            changed.attempt_number,
            changed.worker,
            now() - make_interval(secs => changed.started_ago),
            now() - make_interval(secs => changed.ended_ago),
            changed.outcome,
            changed.error_type,
            changed.error,
            -- The trigger failures_name_their_incident overwrites both values. With
            -- session_replication_role = replica, no trigger fires, and each failed attempt is an
            -- incident of its own.
            CASE
                WHEN changed.outcome IN ('failed', 'lease_expired')
                    AND current_setting('session_replication_role') = 'replica'
                    THEN jobctl.failure_cause(changed.error_type, changed.error, changed.output)
            END,
            CASE
                WHEN changed.outcome IN ('failed', 'lease_expired')
                    THEN changed.id || '.' || changed.attempt_number
            END,
            changed.exit_code,
            changed.signal,
            changed.http_status,
            changed.output,
            changed.output_bytes,
            changed.is_truncated
        FROM changed
        WHERE changed.outcome IS NOT NULL
        -- In the order of the runs, so that the first of several attempts that fail alike names the
        -- incident.
        ORDER BY changed.id
        -- If the history has the attempt already, the run still ends.
        ON CONFLICT (run_id, attempt) DO NOTHING
    )
    SELECT
        array_agg(changed.id) AS ids,
        array_agg(changed.attempt_number) AS attempts,
        array_agg(changed.claim_time) AS claimed_at,
        array_agg(changed.status) AS statuses,
        array_agg(coalesce(changed.expires_first, false)) AS expires_first,
        array_agg(changed.job_type) AS jobs,
        -- count_attempts counts dropped and expired runs by these names.
        array_agg(CASE way WHEN 'dropped' THEN way ELSE changed.status END) AS counted_statuses,
        array_agg(CASE WHEN way IN ('expired', 'dropped') THEN way ELSE changed.outcome END)
            AS counted_outcomes,
        array_agg(
            CASE
                WHEN changed.outcome = 'succeeded' THEN changed.started_ago - changed.ended_ago
            END
        ) AS run_times,
        array_agg(CASE WHEN way = 'result' AND changed.is_final THEN changed.waited END)
            AS wait_times,
        array_agg(changed.id) FILTER (WHERE changed.is_final) AS finals,
        array_agg(changed.id)
            FILTER (WHERE changed.outcome = 'snoozed' AND changed.status = 'queued') AS snoozed,
        count(*) < (SELECT count(*) FROM matched) AS is_skipped
    INTO
        ids,
        attempts,
        claimed_at,
        statuses,
        expires_first,
        jobs,
        counted_statuses,
        counted_outcomes,
        run_times,
        wait_times,
        finals,
        snoozed,
        is_skipped
    FROM changed;
    IF is_skipped THEN
        PERFORM jobctl.require_written('job_runs', chosen => 1, written => 0);
    END IF;
    -- If no run was changed, the arrays are NULL, and count_attempts does nothing, because it is
    -- STRICT.
    IF way NOT IN ('release', 'cancel', 'predecessor') THEN
        PERFORM jobctl.count_attempts(
            ids, jobs, counted_statuses, counted_outcomes, run_times, wait_times
        );
    END IF;
    IF snoozed IS NOT NULL THEN
        -- Only results can be snoozed, and all results of a call are of one worker.
        PERFORM jobctl.hold_snoozed(snoozed, workers[1]);
    END IF;
    followed := '{}';
    queues_runs := false;
    IF finals IS NOT NULL THEN
        followed := jobctl.mark_followers(finals);
        -- This check costs less than the call of note_predecessors. In most schemas, no definition
        -- has `after`.
        IF EXISTS (
            SELECT FROM jobctl.job_definitions AS following
            WHERE following.after IS NOT NULL
        ) THEN
            followed := followed || jobctl.note_predecessors(finals);
        END IF;
        queues_runs := jobctl.enqueue_hooks(finals) OR followed <> '{}';
    END IF;
END
$$;
CREATE FUNCTION jobctl.enqueue(job text, payload jsonb DEFAULT '{}'::jsonb, key text DEFAULT NULL::text, run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, run_in interval DEFAULT NULL::interval, priority integer DEFAULT NULL::integer, queue text DEFAULT NULL::text, max_attempts integer DEFAULT NULL::integer, timeout interval DEFAULT NULL::interval, backoff text DEFAULT NULL::text, key_scope text DEFAULT 'retained'::text, on_conflict text DEFAULT NULL::text, debounce interval DEFAULT NULL::interval, debounce_max interval DEFAULT NULL::interval, expires_in interval DEFAULT NULL::interval, share text DEFAULT NULL::text, after bigint[] DEFAULT NULL::bigint[], after_rule text DEFAULT 'success'::text, traceparent text DEFAULT NULL::text, lock text DEFAULT NULL::text, worker text DEFAULT NULL::text, "in" interval DEFAULT NULL::interval, after_any_end boolean DEFAULT false, or_cancel boolean DEFAULT false, caller jobctl.caller DEFAULT CURRENT_USER) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    answer record;
    refusal record;
BEGIN
    IF after <> '{}' AND (on_conflict = 'replace' OR debounce IS NOT NULL) THEN
        RAISE EXCEPTION 'after excludes replace and debounce' USING ERRCODE = '22023';
    ELSIF after_rule IS NULL OR after_rule NOT IN ('success', 'any_end', 'or_cancel') THEN
        RAISE EXCEPTION 'after_rule must be success, any_end or or_cancel' USING ERRCODE = '22023';
    ELSIF (after_any_end AND or_cancel)
        OR ((after_any_end OR or_cancel) AND after_rule <> 'success')
    THEN
        RAISE EXCEPTION 'after_any_end, or_cancel and after_rule exclude each other'
            USING ERRCODE = '22023';
    ELSIF num_nonnulls("in", run_in) > 1 THEN
        RAISE EXCEPTION 'in and run_in are the same argument; leave one out'
            USING ERRCODE = '22023';
    END IF;
    after_rule := CASE
        WHEN after_any_end THEN 'any_end'
        WHEN or_cancel THEN 'or_cancel'
        ELSE after_rule
    END;
    answer := jobctl.try_enqueue(
        job, payload, key, run_at, coalesce("in", run_in), priority, queue, max_attempts, timeout,
        backoff, key_scope, on_conflict, debounce, debounce_max, expires_in, share, lock, worker,
        traceparent, caller
    );
    -- Only a new run waits for others. An existing run with the key stays as it is.
    IF answer.result = 'enqueued' AND after <> '{}' THEN
        refusal := jobctl.wait_for(
            array_fill(answer.id, ARRAY[cardinality(after)]),
            after,
            array_fill(after_rule, ARRAY[cardinality(after)]),
            caller
        );
        answer.code := refusal.code;
        answer.reason := refusal.reason;
    END IF;
    IF answer.code IS NULL THEN
        RETURN answer.id;
    END IF;
    RAISE EXCEPTION USING
        ERRCODE = answer.code,
        -- The texts of try_enqueue name run_in, also if the caller gave `in`.
        MESSAGE = CASE
            WHEN "in" IS NOT NULL AND answer.code = '22023'
                THEN replace(answer.reason, 'run_in', 'in')
            ELSE answer.reason
        END,
        DETAIL = CASE WHEN answer.code IN ('JC004', 'JC009') THEN key ELSE coalesce(job, '') END;
END
$$;
CREATE FUNCTION jobctl.enqueue_following(definitions bigint[], times timestamp with time zone[]) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    AS $$
DECLARE
    -- The rows of job_predecessors that this call has locked.
    locked_ids uuid[];
    enqueued bigint[];
    has_deleted boolean;
BEGIN
    locked_ids := ARRAY(
        SELECT noted.id
        FROM jobctl.job_predecessors AS noted
        JOIN (
            -- Here and below, -infinity replaces NULL, which `=` would not match.
            SELECT DISTINCT given.definition_id, coalesce(given.time, '-infinity') AS time
            FROM unnest(definitions, times) AS given (definition_id, time)
        ) AS asked
            ON asked.definition_id = noted.definition_id
            AND asked.time = coalesce(noted.scheduled_for, '-infinity')
        ORDER BY noted.scheduled_for, noted.definition_id, noted.run_id
        LIMIT 10000
        FOR UPDATE OF noted SKIP LOCKED
    );
    WITH locked AS MATERIALIZED (
        SELECT
            noted.*,
            max(noted.run_id) OVER (
                PARTITION BY noted.definition_id, noted.scheduled_for, noted.job_type
            ) AS newest_run
        FROM unnest(locked_ids) AS chosen (id)
        JOIN jobctl.job_predecessors AS noted ON noted.id = chosen.id
    ),
    -- One row for each job that follows and each of its times.
    followings AS MATERIALIZED (
        SELECT
            grouped.definition_id,
            grouped.scheduled_for,
            grouped.is_old,
            following.after IS NULL AS follows_no_longer,
            -- Each job in `after` has a row for this time.
            coalesce(following.after <@ grouped.jobs, false)
            -- This call must have locked all rows of a scheduled time. Without a scheduled time, a
            -- row that another session has locked can count for the next run instead.
            AND (
                grouped.scheduled_for IS NULL
                OR grouped.rows = (
                    SELECT count(*)
                    FROM jobctl.job_predecessors AS noted
                    WHERE noted.definition_id = grouped.definition_id
                        AND noted.scheduled_for = grouped.scheduled_for
                )
            ) AS is_complete
        FROM (
            SELECT
                locked.definition_id,
                locked.scheduled_for,
                array_agg(DISTINCT locked.job_type) AS jobs,
                count(*) AS rows,
                locked.scheduled_for IS NOT NULL
                    AND min(locked.noted_at) <= now() - interval '7 days' AS is_old
            FROM locked
            GROUP BY locked.definition_id, locked.scheduled_for
        ) AS grouped
        LEFT JOIN jobctl.job_definitions AS following
            ON following.id = grouped.definition_id
            AND following.enabled
            AND following.paused_at IS NULL
    ),
    judged AS MATERIALIZED (
        SELECT
            locked.id,
            -- For a scheduled time, follow every run, because a job may have one for each worker.
            -- Otherwise, follow the newest.
            locked.scheduled_for IS NOT NULL OR locked.run_id = locked.newest_run AS is_followed,
            -- The row was used, or will never be used.
            followings.is_complete
                OR followings.follows_no_longer
                OR followings.is_old
                OR locked.scheduled_for IS NULL AND locked.run_id < locked.newest_run
                AS is_to_delete
        FROM locked
        JOIN followings
            ON followings.definition_id = locked.definition_id
            AND coalesce(followings.scheduled_for, '-infinity')
                = coalesce(locked.scheduled_for, '-infinity')
    ),
    kept AS (
        UPDATE jobctl.job_predecessors AS noted
        SET is_new = false
        FROM judged
        WHERE noted.id = judged.id
            AND noted.is_new
            AND NOT judged.is_to_delete
    ),
    deleted AS (
        DELETE FROM jobctl.job_predecessors AS noted
        USING judged
        WHERE noted.id = judged.id
            AND judged.is_to_delete
        RETURNING noted.*, judged.is_followed
    ),
    predecessors AS MATERIALIZED (
        -- A run that was retried may have ended twice, and so have two rows.
        SELECT DISTINCT
            deleted.definition_id,
            deleted.scheduled_for,
            deleted.run_id,
            run.traceparent
        FROM deleted
        JOIN jobctl.job_definitions AS following ON following.id = deleted.definition_id
        LEFT JOIN jobctl.job_runs AS run ON run.id = deleted.run_id
        WHERE deleted.is_followed
            AND deleted.job_type = ANY (following.after)
            -- Leave out deleted runs without a scheduled time: they had ended as `when` asks.
            -- Deleted runs of a scheduled time stay in, because nothing says how they ended.
            AND (run.id IS NOT NULL OR deleted.scheduled_for IS NOT NULL)
    ),
    new AS (
        INSERT INTO jobctl.job_runs AS run (
            definition_id,
            job_type,
            payload,
            queue,
            priority,
            run_at,
            status,
            max_attempts,
            backoff,
            scheduled_for,
            expires_at,
            traceparent,
            enqueued_by
        )
        SELECT
            following.id,
            following.name,
            following.payload,
            following.queue,
            following.priority,
            coalesce(followings.scheduled_for, now()),
            CASE WHEN awaited.runs > 0 THEN 'blocked' ELSE 'queued' END,
            following.max_attempts,
            following.backoff,
            followings.scheduled_for,
            coalesce(followings.scheduled_for, now())
                + extract(epoch FROM following.expires) * interval '1 second',
            awaited.traceparent,
            -- The schema's owner, because an application must not own the run that follows its run.
            CURRENT_USER
        FROM followings
        JOIN jobctl.job_definitions AS following ON following.id = followings.definition_id
        CROSS JOIN LATERAL (
            SELECT
                count(*) AS runs,
                (
                    array_agg(predecessor.traceparent ORDER BY predecessor.run_id)
                        FILTER (WHERE predecessor.traceparent IS NOT NULL)
                )[1] AS traceparent
            FROM predecessors AS predecessor
            WHERE predecessor.definition_id = followings.definition_id
                AND predecessor.scheduled_for IS NOT DISTINCT FROM followings.scheduled_for
        ) AS awaited
        WHERE followings.is_complete
        ORDER BY followings.scheduled_for, following.id
        -- Only a conflict in the index job_runs_fire, whose columns these are: the time already has
        -- its run. A conflict of ids, if the sequence is behind its table, still raises an error.
        ON CONFLICT (definition_id, coalesce(schedule, ''), scheduled_for, coalesce(worker, ''))
            WHERE scheduled_for IS NOT NULL
            DO NOTHING
        RETURNING run.id, run.definition_id, run.scheduled_for
    ),
    edges AS (
        INSERT INTO jobctl.job_dependencies (run_id, after_id, rule, state)
        SELECT new.id, predecessor.run_id, following.when, 'due'
        FROM new
        JOIN jobctl.job_definitions AS following ON following.id = new.definition_id
        JOIN predecessors AS predecessor
            ON predecessor.definition_id = new.definition_id
            AND predecessor.scheduled_for IS NOT DISTINCT FROM new.scheduled_for
    )
    SELECT
        ARRAY(SELECT new.id FROM new),
        EXISTS (SELECT FROM deleted)
    INTO enqueued, has_deleted;
    -- Other jobs may follow these new runs.
    PERFORM jobctl.note_predecessors(enqueued);
    RETURN has_deleted;
END
$$;
CREATE FUNCTION jobctl.enqueue_hooks(runs bigint[]) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    AS $$
DECLARE
    hooked record;
    refusal text;
    hook_run bigint;
    enqueues boolean := false;
BEGIN
    IF NOT EXISTS (
        SELECT FROM jobctl.job_definitions AS definition
        WHERE definition.has_hooks
    ) THEN
        RETURN false;
    END IF;
    FOR hooked IN
        SELECT
            hook.key AS hook_key,
            hook.job AS hook_job,
            run.id,
            run.job_type AS job,
            run.idempotency_key AS key,
            run.status,
            run.attempts,
            run.share,
            run.traceparent,
            last.worker,
            CASE WHEN death.is_by_attempt THEN last.incident END AS incident,
            CASE WHEN run.status <> 'succeeded' THEN run.error_type END AS error_type,
            CASE WHEN run.status <> 'succeeded' THEN run.last_error END AS error,
            CASE WHEN death.is_by_attempt THEN last.cause END AS cause,
            CASE WHEN death.is_by_attempt THEN jobctl.last_line(last.output) END AS last_line,
            CASE run.status
                WHEN 'succeeded' THEN 'succeeded'
                WHEN 'cancelled' THEN 'was cancelled'
                ELSE 'is dead after ' || run.attempts
                    || CASE run.attempts WHEN 1 THEN ' attempt' ELSE ' attempts' END
            END AS ending
        FROM unnest(runs) AS ended (id)
        JOIN jobctl.job_runs AS run ON run.id = ended.id
        LEFT JOIN jobctl.job_attempts AS last
            ON last.run_id = run.id
            AND last.attempt = run.attempts
        JOIN jobctl.job_definitions AS definition ON definition.name = run.job_type
        CROSS JOIN LATERAL (
            SELECT
                run.status = 'dead'
                -- If the error types differ, the run died after its last attempt, by another cause.
                AND last.error_type IS NOT DISTINCT FROM run.error_type AS is_by_attempt
        ) AS death
        CROSS JOIN LATERAL (VALUES
            ('on_dead', definition.on_dead, run.status = 'dead'),
            ('on_success', definition.on_success, run.status = 'succeeded'),
            ('on_end', definition.on_end, true)
        ) AS hook (key, job, is_due)
        WHERE definition.has_hooks
            AND hook.job IS NOT NULL
            AND hook.is_due
            -- Only runs that ended in this transaction, and that are not runs of hooks.
            AND run.finished_at = now()
            AND NOT jobctl.is_hook(definition.name)
        ORDER BY run.id, hook.key
    LOOP
        BEGIN
            SELECT enqueued.id, enqueued.reason INTO hook_run, refusal
            FROM jobctl.try_enqueue(
                job => hooked.hook_job,
                payload => jsonb_build_object(
                    'text', format('run %s of job %s %s', hooked.id, hooked.job, hooked.ending)
                        || coalesce(': ' || hooked.error, '')
                        || coalesce(': ' || hooked.last_line, ''),
                    'run', hooked.id,
                    'job', hooked.job,
                    'key', hooked.key,
                    'status', hooked.status,
                    'attempts', hooked.attempts,
                    'worker', hooked.worker,
                    'share', hooked.share,
                    'incident', hooked.incident,
                    'error_type', hooked.error_type,
                    'error', hooked.error,
                    'cause', hooked.cause,
                    'last_line', hooked.last_line
                ),
                key => format(
                    'jobctl-hook-%s-%s-%s',
                    hooked.hook_key,
                    hooked.id,
                    (extract(epoch FROM now()) * 1000000)::bigint
                ),
                run_at => NULL,
                run_in => NULL,
                priority => NULL,
                queue => NULL,
                max_attempts => NULL,
                timeout => NULL,
                backoff => NULL,
                key_scope => 'live',
                traceparent => hooked.traceparent
            ) AS enqueued;
            -- With pass_result, the hook reads the output of the run's last attempt.
            INSERT INTO jobctl.job_dependencies (run_id, after_id, rule, state, attempt)
            SELECT run.id, hooked.id, 'any_end', 'met', hooked.attempts
            FROM jobctl.job_runs AS run
            JOIN jobctl.job_definitions AS definition ON definition.name = run.job_type
            WHERE run.id = hook_run
                AND definition.pass_result
            ON CONFLICT DO NOTHING;
        EXCEPTION
            -- Raise: the caller repeats the whole transaction.
            WHEN deadlock_detected OR serialization_failure THEN
                RAISE;
            WHEN OTHERS THEN
                refusal := SQLERRM;
        END;
        IF refusal IS NOT NULL THEN
            RAISE WARNING 'jobctl: % of run % is not enqueued: %',
                hooked.hook_key, hooked.id, refusal;
        END IF;
        enqueues := enqueues OR refusal IS NULL;
    END LOOP;
    RETURN enqueues;
END
$$;
CREATE FUNCTION jobctl.enqueue_refusal(job text, definition jobctl.job_definitions, exceeded text, key text, caller name, OUT code text, OUT reason text) RETURNS record
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    is_by_owner boolean;
    is_of_hook boolean;
    only_ends_enqueue boolean;
BEGIN
    IF definition.id IS NULL THEN
        code := 'JC003';
        reason := format('no definition `%s`', job);
        RETURN;
    END IF;
    IF NOT definition.enabled THEN
        -- A disabled definition takes runs only from the schema's owner. enqueue_hooks also calls
        -- as the owner, but must not enqueue here; the prefix marks the keys of its runs.
        is_by_owner := pg_has_role(caller, CURRENT_USER, 'USAGE') IS TRUE;
        is_of_hook := coalesce(key ~ '^jobctl-hook-', false);
        IF is_of_hook OR NOT is_by_owner THEN
            code := '55000';
            reason := format('definition `%s` is disabled and takes no new runs', job);
            RETURN;
        END IF;
    END IF;
    -- Without a list of enqueuers, only ends of runs enqueue a hook. Otherwise any enqueuer could
    -- forge alerts, and use up the rate of the real ones. `apply` rejects hooks that have hooks, so
    -- a definition with hooks needs no call of is_hook.
    only_ends_enqueue := definition.enqueuers IS NULL
        AND NOT definition.has_hooks
        AND jobctl.is_hook(job);
    -- The schema's owner is an operator, too, so enqueue_hooks may enqueue.
    IF (exceeded IS NULL AND definition.enqueuers IS NULL AND NOT only_ends_enqueue)
        OR jobctl.is_operator(caller)
    THEN
        RETURN;
    ELSIF only_ends_enqueue THEN
        code := '42501';
        reason := format(
            'definition `%s` is a hook, so only ends of runs enqueue it, unless its '
            'enqueuers name role `%s`',
            job,
            caller
        );
    ELSIF definition.enqueuers IS NOT NULL AND NOT EXISTS (
        SELECT FROM unnest(definition.enqueuers) AS enqueuer
        WHERE pg_has_role(caller, to_regrole(quote_ident(enqueuer)), 'USAGE')
    ) THEN
        code := '42501';
        reason := format('role `%s` is not among the enqueuers of definition `%s`', caller, job);
    ELSIF exceeded IS NOT NULL THEN
        code := '42501';
        reason := format(
            '%s exceeds the limit of definition `%s`; its enqueue_may_set does not allow '
            'that',
            exceeded,
            job
        );
    END IF;
END
$$;
CREATE FUNCTION jobctl.enqueue_runs(runs jsonb[], tries integer DEFAULT 5, caller jobctl.caller DEFAULT CURRENT_USER, OUT ids bigint[], OUT results text[], OUT codes text[], OUT reasons text[], OUT statuses text[], OUT due_ats timestamp with time zone[]) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    SET lock_timeout TO '2s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    -- The places in `runs` of the runs without an answer: other runs have their keys or ids.
    open integer[];
    -- The ids that were tried for these runs.
    tried bigint[];
    number integer;
    answer record;
    again record;
BEGIN
    IF has_table_privilege(caller, 'jobctl.job_runs', 'INSERT') IS NOT TRUE
        AND EXISTS (
            SELECT FROM unnest(runs) AS line (run)
            WHERE line.run ->> 'job_type' IN ('shell', 'http')
        )
    THEN
        RAISE EXCEPTION 'permission denied for table job_runs' USING ERRCODE = '42501';
    END IF;
    -- The jobs that the role may not enqueue: one check for all runs of a job.
    WITH refused AS MATERIALIZED (
        SELECT line.job, refusal.code, refusal.reason
        FROM (SELECT DISTINCT run ->> 'job_type' FROM unnest(runs) AS run) AS line (job)
        LEFT JOIN jobctl.job_definitions AS definition ON definition.name = line.job
        CROSS JOIN LATERAL
            jobctl.enqueue_refusal(line.job, definition, NULL, NULL, caller) AS refusal
        WHERE line.job NOT IN ('shell', 'http')
            AND refusal.code IS NOT NULL
    ),
    -- Each run with the values that apply to it, and the results of all checks.
    given AS (
        SELECT
            line.ordinal,
            run.job_type,
            run.share,
            run.lock,
            run.worker,
            run.traceparent,
            run.idempotency_key AS key,
            run.on_conflict,
            value.*,
            definition.id AS definition_id,
            coalesce(run.key_scope, 'retained') AS key_scope,
            coalesce(run.queue, definition.queue, 'default') AS queue,
            coalesce(run.priority, definition.priority, 0) AS priority,
            coalesce(run.max_attempts, definition.max_attempts, 10) AS max_attempts,
            coalesce(run.backoff, definition.backoff, 'exponential:1m..30m') AS backoff,
            coalesce(run.run_at, now() + coalesce(value.run_in, value.debounce), now()) AS at,
            coalesce(
                value.expires_in,
                extract(epoch FROM definition.expires) * interval '1 second'
            ) AS expires_after,
            jobctl.exceeded_limit(
                definition, run.queue, run.priority, run.max_attempts, value.timeout, run.backoff
            ) AS exceeded,
            jobctl.wrong_value(
                definition, value.payload, value.payload_bytes, run.idempotency_key,
                run.run_at, value.run_in, run.queue, run.max_attempts, value.timeout, run.backoff,
                CASE
                    WHEN run.backoff <> coalesce(definition.backoff, '')
                        THEN jobctl.is_backoff(run.backoff)
                END,
                run.key_scope, run.on_conflict, value.debounce, value.debounce_max,
                value.expires_in, run.share, run.lock, run.worker, run.traceparent, caller
            ) AS wrong,
            refused.code AS refused_code,
            refused.reason AS refused_reason,
            limited.id AS limited_id,
            limited.result,
            limited.code AS limited_code,
            limited.reason AS limited_reason,
            limited.status,
            limited.due_at
        FROM unnest(runs) WITH ORDINALITY AS line (run, ordinal)
        CROSS JOIN LATERAL jsonb_to_record(line.run) AS run (
            job_type text,
            payload jsonb,
            queue text,
            priority integer,
            run_at timestamptz,
            "in" float8,
            max_attempts integer,
            timeout float8,
            backoff text,
            expires_in float8,
            share text,
            lock text,
            worker text,
            traceparent text,
            idempotency_key text,
            key_scope text,
            on_conflict text,
            debounce float8,
            debounce_max float8
        )
        -- OFFSET 0, here and below: each value is computed once, however often it is used.
        CROSS JOIN LATERAL (
            SELECT
                -- jsonb_to_record turns the JSON null into NULL, so take it from the line.
                coalesce(run.payload, line.run -> 'payload', '{}') AS payload,
                octet_length(run.payload::text) AS payload_bytes,
                make_interval(secs => run."in") AS run_in,
                make_interval(secs => run.timeout) AS timeout,
                make_interval(secs => run.debounce) AS debounce,
                make_interval(secs => run.debounce_max) AS debounce_max,
                make_interval(secs => run.expires_in) AS expires_in
            OFFSET 0
        ) AS value
        LEFT JOIN jobctl.job_definitions AS definition ON definition.name = run.job_type
        LEFT JOIN refused ON refused.job = run.job_type
        -- try_enqueue enqueues the runs of definitions with max_waiting. This condition is in a
        -- subquery: as a condition of the join, it would not keep PostgreSQL from calling the
        -- function for the other runs.
        LEFT JOIN (
            LATERAL (
                SELECT run.job_type AS job
                WHERE definition.max_waiting IS NOT NULL
                OFFSET 0
            ) AS with_limit
            CROSS JOIN LATERAL jobctl.try_enqueue(
                with_limit.job, value.payload, run.idempotency_key, run.run_at, value.run_in,
                run.priority, run.queue, run.max_attempts, value.timeout, run.backoff,
                run.key_scope, run.on_conflict, value.debounce, value.debounce_max,
                value.expires_in, run.share, run.lock, run.worker, run.traceparent, caller
            ) AS limited
        ) ON true
        OFFSET 0
    ),
    -- Each run with its refusal, if there is one.
    checked AS (
        SELECT
            given.*,
            coalesce(
                given.limited_code,
                given.refused_code,
                CASE WHEN excess.reason IS NOT NULL THEN '42501' END,
                CASE WHEN given.wrong IS NOT NULL THEN '22023' END
            ) AS code,
            coalesce(given.limited_reason, given.refused_reason, excess.reason, given.wrong)
                AS reason
        FROM given
        -- Only a run that exceeds a limit costs this call: whether the role may exceed limits.
        CROSS JOIN LATERAL (
            SELECT CASE WHEN given.exceeded IS NOT NULL THEN (
                SELECT (
                    jobctl.enqueue_refusal(
                        given.job_type,
                        definition,
                        given.exceeded,
                        NULL,
                        caller
                    )
                ).reason
                FROM jobctl.job_definitions AS definition
                WHERE definition.id = given.definition_id
            ) END AS reason
            OFFSET 0
        ) AS excess
    ),
    -- Each run with the id of the waiting run that it has replaced, or with the id to insert.
    asked AS MATERIALIZED (
        SELECT
            replaced.*,
            -- Choose the ids here: RETURNING does not say which run got which default id.
            CASE
                WHEN num_nonnulls(replaced.code, replaced.result, replaced.replaced_id) = 0
                    THEN nextval('jobctl.job_runs_id_seq')
            END AS id
        FROM (
            SELECT
                checked.*,
                CASE
                    WHEN checked.on_conflict = 'replace'
                        AND num_nonnulls(checked.code, checked.result) = 0
                        THEN jobctl.replace_waiting(
                            checked.job_type,
                            checked.key,
                            checked.payload,
                            -- Not in the past, here and below, see try_enqueue.
                            greatest(checked.at, now()),
                            checked.debounce_max,
                            checked.at + checked.expires_after,
                            checked.share,
                            checked.lock,
                            checked.worker,
                            checked.traceparent,
                            takes_key => true
                        )
                END AS replaced_id
            FROM checked
        ) AS replaced
    ),
    inserted AS (
        INSERT INTO jobctl.job_runs AS run (
            id,
            definition_id,
            job_type,
            payload,
            queue,
            priority,
            run_at,
            max_attempts,
            timeout,
            backoff,
            idempotency_key,
            key_scope,
            expires_at,
            share,
            lock,
            worker,
            traceparent
        )
        SELECT
            asked.id,
            asked.definition_id,
            asked.job_type,
            asked.payload,
            asked.queue,
            asked.priority,
            greatest(asked.at, now()),
            asked.max_attempts,
            asked.timeout,
            asked.backoff,
            asked.key,
            asked.key_scope,
            asked.at + asked.expires_after,
            asked.share,
            asked.lock,
            asked.worker,
            asked.traceparent
        FROM asked
        WHERE asked.id IS NOT NULL
        ORDER BY asked.id
        ON CONFLICT DO NOTHING
        RETURNING run.id
    )
    SELECT
        array_agg(answered.id) AS ids,
        array_agg(answered.result) AS results,
        array_agg(answered.code) AS codes,
        array_agg(answered.reason) AS reasons,
        array_agg(answered.status) AS statuses,
        array_agg(answered.due_at) AS due_ats,
        array_agg(answered.ordinal)
            FILTER (WHERE answered.result IS NULL AND answered.code IS NULL) AS open,
        array_agg(answered.tried)
            FILTER (WHERE answered.result IS NULL AND answered.code IS NULL) AS tried
    INTO ids, results, codes, reasons, statuses, due_ats, open, tried
    FROM (
        SELECT
            asked.ordinal,
            asked.id AS tried,
            CASE
                WHEN asked.replaced_id IS NOT NULL THEN asked.replaced_id
                WHEN new.is_inserted THEN asked.id
                ELSE asked.limited_id
            END AS id,
            CASE
                WHEN asked.replaced_id IS NOT NULL THEN 'replaced'
                WHEN new.is_inserted THEN 'enqueued'
                ELSE asked.result
            END AS result,
            asked.code,
            asked.reason,
            asked.status,
            asked.due_at
        FROM asked
        CROSS JOIN LATERAL (
            -- Not a join: the planner expects ten runs, and would compare each with each.
            SELECT asked.id IN (SELECT inserted.id FROM inserted) AS is_inserted
            OFFSET 0
        ) AS new
        ORDER BY asked.ordinal
    ) AS answered;
    IF open IS NULL THEN
        RETURN;
    END IF;
    -- Answers the open runs whose keys other runs have.
    FOR answer IN
        SELECT place.number, found.*
        FROM unnest(open) AS place (number)
        CROSS JOIN LATERAL jsonb_to_record(runs[place.number]) AS run (
            job_type text,
            payload jsonb,
            run_at timestamptz,
            "in" float8,
            idempotency_key text,
            key_scope text,
            on_conflict text
        )
        CROSS JOIN LATERAL jobctl.key_conflict(
            run.job_type,
            coalesce(run.payload, runs[place.number] -> 'payload', '{}'),
            run.idempotency_key,
            coalesce(run.key_scope, 'retained'),
            run.on_conflict,
            coalesce(run.run_at, now() + make_interval(secs => run."in"), now())
        ) AS found
    LOOP
        ids[answer.number] := answer.id;
        results[answer.number] := answer.result;
        codes[answer.number] := answer.code;
        reasons[answer.number] := answer.reason;
        statuses[answer.number] := answer.status;
        due_ats[answer.number] := answer.due_at;
    END LOOP;
    open := ARRAY(
        SELECT place.number
        FROM unnest(open) AS place (number)
        WHERE results[place.number] IS NULL
            AND codes[place.number] IS NULL
    );
    IF open = '{}' THEN
        RETURN;
    ELSIF tries < 2 THEN
        -- If other runs have these ids, the sequence is behind its table. Otherwise a trigger
        -- skipped the rows.
        PERFORM jobctl.require_written('job_runs', cardinality(tried), count(*))
        FROM jobctl.job_runs AS run
        WHERE run.id = ANY (tried);
        FOREACH number IN ARRAY open LOOP
            codes[number] := 'JC007';
            reasons[number] := 'the sequence of jobctl.job_runs is behind its table; `jobctl '
                'doctor` prints the statement that corrects it';
        END LOOP;
        RETURN;
    END IF;
    -- Tries the runs again that are still open, and copies the answers to their places.
    again := jobctl.enqueue_runs(
        ARRAY(SELECT runs[place.number] FROM unnest(open) AS place (number)),
        tries - 1,
        caller
    );
    FOR place IN 1..cardinality(open) LOOP
        ids[open[place]] := again.ids[place];
        results[open[place]] := again.results[place];
        codes[open[place]] := again.codes[place];
        reasons[open[place]] := again.reasons[place];
        statuses[open[place]] := again.statuses[place];
        due_ats[open[place]] := again.due_ats[place];
    END LOOP;
END
$$;
CREATE FUNCTION jobctl.exceeded_limit(definition jobctl.job_definitions, queue text, priority integer, max_attempts integer, timeout interval, backoff text) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    SELECT CASE
        WHEN queue <> definition.queue AND 'queue' <> ALL (definition.enqueue_may_set)
            THEN 'queue'
        WHEN priority < definition.priority AND 'priority' <> ALL (definition.enqueue_may_set)
            THEN 'priority'
        WHEN max_attempts > definition.max_attempts
            AND 'max_attempts' <> ALL (definition.enqueue_may_set)
            THEN 'max_attempts'
        WHEN backoff <> definition.backoff AND 'backoff' <> ALL (definition.enqueue_may_set)
            THEN 'backoff'
        WHEN timeout IS NOT NULL
            AND 'timeout' <> ALL (definition.enqueue_may_set)
            AND timeout > coalesce(
                definition.timeout,
                (definition.action ->> 'timeout')::interval,
                CASE definition.kind WHEN 'http' THEN interval '30 seconds' END
            )
            THEN 'timeout'
    END
$$;
CREATE FUNCTION jobctl.failure_cause(error_type text, error text, output text) RETURNS text
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET standard_conforming_strings TO 'on'
    AS $_$
    SELECT
        CASE
            WHEN error_type IN ('signal', 'http_status') THEN left(coalesce(error, ''), 200)
            ELSE coalesce(
                system.cause,
                left(nullif(shape.line, ''), 200),
                left(coalesce(error, ''), 200)
            )
        END
    FROM (
        SELECT
            CASE error_type
                WHEN 'exit_code' THEN right(output, 1000)
                ELSE right(error, 1000)
            END AS tail,
            CASE error_type
                -- NULL if the last line is longer than 1,000 characters. The \n in front is for an
                -- output of one line: the pattern begins with the end of the line before.
                WHEN 'exit_code'
                    THEN substring(right(E'\n' || output, 1000), '[\r\n]([^\r\n]*\S)\s*$')
                ELSE left(error, 1000)
            END AS line
    ) AS said
    -- Most texts have no error of the operating system. For them, LIKE saves the slow regular
    -- expression; it reads the end of the output and the error at once. COLLATE "C": in Turkish,
    -- the lower case of I is not i. COLLATE "default": in C, \w matches only letters of ASCII.
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN lower(right(coalesce(output, '') || coalesce(error, ''), 1200) COLLATE "C")
                LIKE ANY (ARRAY[
                    '%no space left%', '%quota exceeded%', '%read-only file%', '%output error%',
                    '%allocate memory%', '%many open files%', '%connection %', '%unreachable%',
                    '%no route%', '%name %'
                ])
                THEN (
                    regexp_match(
                        lower(said.tail COLLATE "C") COLLATE "default",
                        '(no space left on device|disk quota exceeded'
                        '|read-only file system|input/output error'
                        '|cannot allocate memory|too many open files'
                        '|connection refused|connection reset by peer'
                        '|connection timed out|network is unreachable'
                        '|no route to host|(?:temporary failure in )?name resolution'
                        '|name or service not known)'
                        '(?:[^\w\r\n]|os error \d+|; the server is `[^`\r\n]*`)*\s*$'
                    )
                )[1]
        END AS cause
    ) AS system
    -- Replaces quoted texts and addresses. An apostrophe within a word does not begin a quoted
    -- text.
    CROSS JOIN LATERAL (
        SELECT regexp_replace(
            said.line,
            '"(?:[^"\\]|\\.)*"|`[^`]*`|(?<!\w)[bru]?''(?:[^''\\]|\\.)*'''
            '|[\u2018\u201c\u00ab][^\u2019\u201d\u00bb]*[\u2019\u201d\u00bb]|\S+://\S+',
            '#',
            'g'
        ) AS line
    ) AS unquoted
    -- Replaces words with a digit, @, /, = or \, such as numbers, paths and mail addresses.
    CROSS JOIN LATERAL (
        SELECT regexp_replace(unquoted.line, '[^\s:;,()]*[0-9@/=\\][^\s:;,()]*', '#', 'g') AS line
    ) AS unnumbered
    -- Empties lines that do not name a cause: the last line of a stack in Java, that of an
    -- exception in Node.js, and lines without three letters in a row. Not [:alpha:], which depends
    -- on the locale: in C, only A to Z are letters.
    CROSS JOIN LATERAL (
        SELECT regexp_replace(
            unnumbered.line,
            '^(?:\s*\.\.\. # more|Node\.js #'
            '|[^A-Za-z\u00c0-\u1fff\u2c00-\u2dff\u3040-\ud7ff\uf900-\uffdc]*'
            '(?:[A-Za-z\u00c0-\u1fff\u2c00-\u2dff\u3040-\ud7ff\uf900-\uffdc]{1,2}'
            '[^A-Za-z\u00c0-\u1fff\u2c00-\u2dff\u3040-\ud7ff\uf900-\uffdc]+)*'
            '[A-Za-z\u00c0-\u1fff\u2c00-\u2dff\u3040-\ud7ff\uf900-\uffdc]{0,2})$',
            ''
        ) AS line
    ) AS shape
$_$;
CREATE FUNCTION jobctl.fire(definition_id bigint, seen timestamp with time zone, schedule text, time_zone text, next timestamp with time zone, times timestamp with time zone[], delay interval, missed bigint, put_off_until timestamp with time zone DEFAULT NULL::timestamp with time zone, schedule_id bigint DEFAULT NULL::bigint) RETURNS bigint[]
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    definition jobctl.job_definitions;
    -- The schedule of an application; NULLs if the definition's schedule fires.
    app jobctl.job_schedules;
    fired bigint[] := '{}';
    due timestamptz[] := fire.times;
    -- The worker of each run; NULL: any worker may run it. Not the text `{NULL}`, which depends on
    -- the setting array_nulls.
    workers text[] := ARRAY[NULL];
    skipped bigint;
BEGIN
    -- Locks the schedule. If another tick has locked it, the row stays NULL, and the checks fail.
    IF fire.schedule_id IS NULL THEN
        SELECT * INTO definition
        FROM jobctl.job_definitions AS stored
        WHERE stored.id = fire.definition_id
        FOR NO KEY UPDATE SKIP LOCKED;
    ELSE
        SELECT * INTO app
        FROM jobctl.job_schedules AS stored
        WHERE stored.id = fire.schedule_id
            AND stored.definition_id = fire.definition_id
        FOR NO KEY UPDATE SKIP LOCKED;
        SELECT * INTO definition
        FROM jobctl.job_definitions AS stored
        WHERE stored.id = app.definition_id;
        -- The application's schedule replaces that of the definition from here on.
        definition.schedule := app.schedule;
        definition.time_zone := app.time_zone;
        definition.next_run_at := app.next_run_at;
        definition.payload := app.payload;
    END IF;
    IF (
        definition.enabled
        AND definition.paused_at IS NULL
        AND definition.next_run_at IS NOT DISTINCT FROM fire.seen
        AND definition.schedule = fire.schedule
        AND definition.time_zone = fire.time_zone
        AND coalesce(fire.seen <= now(), true)
        -- The checks from here on limit what a worker can invent, because SQL can't compute the
        -- times of a schedule: each minute fires at most once.
        AND CASE
            -- A schedule that is put off keeps its time.
            WHEN fire.put_off_until IS NOT NULL
                THEN fire.next IS NOT DISTINCT FROM fire.seen AND cardinality(fire.times) = 0
            -- An application's schedule without an end always has a next time.
            WHEN fire.next IS NULL THEN app.id IS NULL OR app.ends_at IS NOT NULL
            -- The next time is a full minute, and later than the one that was due. A schedule that
            -- had no time yet gets its first one: after it was stored, or after the tick read it,
            -- which was less than an hour ago.
            ELSE extract(epoch FROM fire.next) % 60 = 0
                AND fire.next
                    > coalesce(fire.seen, least(app.updated_at, now() - interval '1 hour'))
        END
        AND cardinality(fire.times) <= definition.most_fires
        AND coalesce(array_ndims(fire.times), 1) = 1
        AND extract(epoch FROM fire.delay) BETWEEN 0 AND extract(epoch FROM definition.spread)
        -- At most one time a minute was missed. Without a limit, the sum in skipped_fires could
        -- overflow.
        AND fire.missed BETWEEN 0
            AND coalesce(extract(epoch FROM now() - fire.seen) / 60, 0) + 1
        AND NOT EXISTS (
            SELECT FROM unnest(fire.times) AS nominal
            WHERE (
                nominal BETWEEN fire.seen AND now()
                AND (nominal = fire.seen OR extract(epoch FROM nominal) % 60 = 0)
                AND coalesce(nominal < fire.next, true)
                AND nominal BETWEEN coalesce(app.starts_at, '-infinity')
                    AND coalesce(app.ends_at, 'infinity')
            ) IS NOT TRUE
        )
    ) IS NOT TRUE THEN
        RETURN NULL;
    END IF;
    IF definition.each_worker OR definition.workers IS NOT NULL THEN
        workers := jobctl.regular_workers(definition.workers);
    END IF;
    IF definition.overlap = 'skip' THEN
        -- Keep the newest of several due times, and the workers without an unfinished run.
        due := due[array_upper(due, 1):];
        workers := ARRAY(
            SELECT pinned
            FROM unnest(workers) AS pinned
            -- The conditions also repeat those of the indexes, so that these can be used. Running
            -- and waiting runs of a definition have an index each.
            WHERE CASE
                WHEN app.id IS NOT NULL THEN NOT EXISTS (
                    SELECT FROM jobctl.job_runs AS run
                    WHERE run.schedule = app.name
                        AND run.schedule IS NOT NULL
                        AND run.finished_at IS NULL
                        AND run.definition_id = definition.id
                        AND run.worker IS NOT DISTINCT FROM pinned
                )
                -- With scheduled_for, but without the name of an application's schedule: runs of
                -- the definition's own schedule.
                ELSE NOT EXISTS (
                    SELECT FROM jobctl.job_runs AS run
                    WHERE run.job_type = definition.name
                        AND run.status = 'running'
                        AND run.scheduled_for IS NOT NULL
                        AND run.schedule IS NULL
                        AND run.worker IS NOT DISTINCT FROM pinned
                ) AND NOT EXISTS (
                    SELECT FROM jobctl.job_runs AS run
                    WHERE run.job_type = definition.name
                        AND run.job_type NOT IN ('shell', 'http')
                        AND run.status IN ('queued', 'failed')
                        AND run.scheduled_for IS NOT NULL
                        AND run.schedule IS NULL
                        AND run.worker IS NOT DISTINCT FROM pinned
                )
            END
        );
    END IF;
    -- In seconds, because the length of a month or a day depends on the time that it is added to.
    delay := extract(epoch FROM fire.delay) * interval '1 second';
    -- The payload of a schedule that is put off may be unreadable. Only this statement reads
    -- payloads, and only to insert runs. For a schedule that is put off, `times` is empty, see the
    -- checks above, so the statement inserts no run.
    WITH queued AS (
        INSERT INTO jobctl.job_runs AS run (
            definition_id,
            job_type,
            payload,
            queue,
            priority,
            run_at,
            max_attempts,
            backoff,
            scheduled_for,
            schedule,
            worker,
            share,
            expires_at,
            enqueued_by
        )
        SELECT
            definition.id,
            definition.name,
            definition.payload,
            definition.queue,
            definition.priority,
            nominal + delay,
            definition.max_attempts,
            definition.backoff,
            nominal,
            app.name,
            pinned,
            app.share,
            nominal + delay + extract(epoch FROM definition.expires) * interval '1 second',
            coalesce(app.owner, SESSION_USER)
        FROM unnest(due) AS nominal
        CROSS JOIN unnest(workers) AS pinned
        ORDER BY nominal, pinned
        -- Only a conflict in the index job_runs_fire, whose columns these are: the time already has
        -- its run. A conflict of ids, if the sequence is behind its table, still raises an error.
        ON CONFLICT (definition_id, coalesce(schedule, ''), scheduled_for, coalesce(worker, ''))
            WHERE scheduled_for IS NOT NULL
            DO NOTHING
        RETURNING run.id, run.scheduled_for
    )
    SELECT
        coalesce(array_agg(queued.id ORDER BY queued.id), '{}'),
        fire.missed + cardinality(fire.times) - count(DISTINCT queued.scheduled_for)
    INTO fired, skipped
    FROM queued;
    PERFORM jobctl.note_predecessors(fired);
    IF app.id IS NULL THEN
        UPDATE jobctl.job_definitions AS moved
        SET
            next_run_at = fire.next,
            put_off_until = fire.put_off_until,
            skipped_fires = moved.skipped_fires + skipped
        WHERE moved.id = definition.id;
    ELSIF fire.next IS NULL AND fire.put_off_until IS NULL THEN
        DELETE FROM jobctl.job_schedules AS ended WHERE ended.id = app.id;
    ELSE
        UPDATE jobctl.job_schedules AS moved
        SET
            next_run_at = fire.next,
            put_off_until = fire.put_off_until,
            skipped_fires = moved.skipped_fires + skipped
        WHERE moved.id = app.id;
    END IF;
    RETURN fired;
END
$$;
CREATE FUNCTION jobctl.forget_history() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    AS $$
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        -- Not TRUNCATE, which fails here if the same command also truncates job_attempts.
        DELETE FROM jobctl.job_attempts;
        DELETE FROM jobctl.job_dependencies;
        DELETE FROM jobctl.job_predecessors;
    ELSE
        -- An array makes the planner use the index, whatever size of the table it assumes.
        DELETE FROM jobctl.job_attempts AS attempt
        WHERE attempt.run_id = ANY (ARRAY(SELECT deleted.id FROM deleted));
        IF EXISTS (SELECT FROM jobctl.job_dependencies) THEN
            -- Delete only rows that are met or whose predecessor is gone. The end of a predecessor
            -- may update the other rows, and would wait for this transaction if it deleted them.
            -- They stay until their predecessor ends or is deleted.
            DELETE FROM jobctl.job_dependencies AS dependency
            WHERE dependency.run_id = ANY (ARRAY(SELECT deleted.id FROM deleted))
                AND (
                    dependency.state = 'met'
                    OR NOT EXISTS (
                        SELECT FROM jobctl.job_runs AS run
                        WHERE run.id = dependency.after_id
                    )
                );
            -- Rows of followers that were deleted before.
            DELETE FROM jobctl.job_dependencies AS dependency
            WHERE dependency.after_id = ANY (ARRAY(SELECT deleted.id FROM deleted))
                AND NOT EXISTS (
                    SELECT FROM jobctl.job_runs AS run
                    WHERE run.id = dependency.run_id
                );
            PERFORM jobctl.mark_followers(ARRAY(SELECT deleted.id FROM deleted));
        END IF;
    END IF;
    RETURN NULL;
END
$$;
CREATE FUNCTION jobctl.hold_snoozed(runs bigint[], worker text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM jobctl.job_definitions AS definition
        WHERE definition.snooze = 'job'
    ) THEN
        RETURN;
    END IF;
    WITH snoozed AS (
        SELECT
            run.job_type,
            max(run.run_at) AS until,
            -- The run that is due last.
            (array_agg(run.id ORDER BY run.run_at DESC, run.id DESC))[1] AS run_id
        FROM jobctl.job_runs AS run
        JOIN jobctl.job_definitions AS definition
            ON definition.name = run.job_type
            AND definition.snooze = 'job'
        WHERE run.id = ANY (hold_snoozed.runs)
            AND run.run_at > now()
        GROUP BY run.job_type
    ),
    removed AS (
        DELETE FROM jobctl.job_holds AS hold
        WHERE hold.id IN (
            SELECT old.id
            FROM jobctl.job_holds AS old
            -- Shorter holds of these jobs, which runs made.
            LEFT JOIN snoozed
                ON old.scope = 'job'
                AND old.name = snoozed.job_type
                AND old.run_id IS NOT NULL
                AND old.held_until < snoozed.until
            WHERE old.held_until <= now()
                OR snoozed.job_type IS NOT NULL
            -- SKIP LOCKED: a result must not wait for another tick that deletes the same hold.
            FOR UPDATE OF old SKIP LOCKED
        )
    )
    INSERT INTO jobctl.job_holds (scope, name, held_until, host_user, reason, run_id)
    SELECT
        'job',
        snoozed.job_type,
        snoozed.until,
        hold_snoozed.worker,
        format('run %s asked for a later attempt', snoozed.run_id),
        snoozed.run_id
    FROM snoozed
    WHERE NOT EXISTS (
        SELECT FROM jobctl.current_holds AS hold
        WHERE hold.scope = 'job'
            AND hold.name = snoozed.job_type
            -- A hold without an end lasts longer than any other.
            AND coalesce(hold.held_until >= snoozed.until, true)
    );
END
$$;
CREATE FUNCTION jobctl.is_backoff(backoff text) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
BEGIN
    -- The simplest backoffs need only this check: with two digits, all are shorter than the limit
    -- of 30 days. The check below is slow.
    IF backoff ~ '^(fixed|polynomial|exponential):[0-9]{1,2}(ms|[smh])$' THEN
        RETURN true;
    END IF;
    RETURN (
        SELECT backoff ~ replace(
                '^((fixed|polynomial):DELAY|exponential:DELAY([.][.]DELAY)?|list:DELAY(,DELAY)*)$',
                'DELAY',
                ' *([0-9][0-9 ]*(ms|[smhdw]) *)+'
            )
            AND bool_and(delay.seconds <= 30 * 86400)
            -- In `exponential:1m..30m`, the first delay must not be the longer one.
            AND (
                backoff NOT LIKE 'exponential:%'
                OR min(delay.seconds) = (array_agg(delay.seconds ORDER BY delay.ordinal))[1]
            )
        FROM (
            SELECT given.ordinal, (
                SELECT coalesce(sum(replace(part[1], ' ', '')::numeric * CASE part[2]
                    WHEN 'ms' THEN 0.001
                    WHEN 's' THEN 1
                    WHEN 'm' THEN 60
                    WHEN 'h' THEN 3600
                    WHEN 'd' THEN 86400
                    WHEN 'w' THEN 604800
                END), 0)
                FROM regexp_matches(given.text, '([0-9][0-9 ]*)(ms|[smhdw])', 'g') AS part
            ) AS seconds
            FROM regexp_split_to_table(backoff, ',|[.][.]') WITH ORDINALITY AS given (text, ordinal)
        ) AS delay
    );
END
$_$;
CREATE FUNCTION jobctl.is_hook(job text) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT EXISTS (
        SELECT FROM jobctl.job_definitions AS other
        WHERE other.has_hooks
            AND is_hook.job IN (other.on_dead, other.on_success, other.on_end)
    )
$$;
CREATE FUNCTION jobctl.is_on_day(day timestamp without time zone, part text) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $_$
    SELECT CASE
        WHEN part = 'l' THEN given.days_left = 0
        -- The last day, or a Friday if only the weekend follows.
        WHEN part = 'lw'
            THEN given.weekday < 6 AND given.days_left = 0
                OR given.weekday = 5 AND given.days_left <= 2
        -- The n-th Monday of a month is one of its n-th seven days.
        WHEN part ~ '#'
            THEN given.weekday = given.first
                AND ceil(given.day_of_month / 7) = right(part, 1)::integer
        WHEN part ~ 'l$' THEN given.weekday = given.first AND given.days_left < 7
        WHEN given.first <= given.last
            THEN given.weekday BETWEEN given.first AND given.last
        ELSE given.weekday >= given.first OR given.weekday <= given.last
    END
    FROM (
        -- Monday is 1, and Sunday is 7. Without a range, `first` and `last` are the same day.
        SELECT
            array_position('{mon,tue,wed,thu,fri,sat,sun}'::text[], left(part, 3)) AS first,
            array_position('{mon,tue,wed,thu,fri,sat,sun}'::text[], right(part, 3)) AS last,
            extract(isodow FROM is_on_day.day)::integer AS weekday,
            extract(day FROM is_on_day.day) AS day_of_month,
            extract(
                day FROM date_trunc('month', is_on_day.day) + interval '1 month' - interval '1 day'
            ) - extract(day FROM is_on_day.day) AS days_left
    ) AS given
$_$;
CREATE FUNCTION jobctl.is_operator(role name) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT has_column_privilege(role, 'jobctl.job_runs', 'cancel_requested_at', 'UPDATE')
$$;
CREATE FUNCTION jobctl.is_own_effect(role name, recorded_by text) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT coalesce(
        is_own_effect.role = is_own_effect.recorded_by
        OR pg_has_role(
            is_own_effect.role,
            to_regrole(quote_ident(is_own_effect.recorded_by)),
            'USAGE'
        )
        AND NOT (SELECT known.rolsuper FROM pg_roles AS known WHERE known.rolname = role),
        false
    )
$$;
CREATE FUNCTION jobctl.is_running(run_id bigint, attempt integer) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT EXISTS (
        SELECT FROM jobctl.job_runs AS run
        WHERE run.id = is_running.run_id
            AND run.attempts = is_running.attempt
            AND run.status = 'running'
    )
$$;
CREATE FUNCTION jobctl.keep_effect() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF jobctl.may_settle(CURRENT_USER, OLD.recorded_by) IS NOT TRUE THEN
        RAISE EXCEPTION 'effect `%` was recorded by another role; an operator can settle it',
            OLD.key
            USING ERRCODE = '42501';
    ELSIF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    RETURN NEW;
END
$$;
CREATE FUNCTION jobctl.key_conflict(job text, payload jsonb, key text, key_scope text, on_conflict text, run_at timestamp with time zone) RETURNS TABLE(id bigint, result text, code text, reason text, status text, due_at timestamp with time zone)
    LANGUAGE sql STABLE
    AS $$
    SELECT
        CASE WHEN found.outcome = 'existing' THEN run.id END AS id,
        CASE WHEN found.outcome = 'existing' THEN found.outcome END AS result,
        CASE WHEN found.outcome <> 'existing' THEN found.outcome END AS code,
        CASE found.outcome
            WHEN 'JC009' THEN format('key `%s` already has a run', key)
            WHEN 'JC004' THEN format('key `%s` belongs to a run with another job or payload', key)
        END AS reason,
        CASE WHEN found.outcome = 'existing' THEN run.status END AS status,
        CASE
            WHEN found.outcome = 'existing'
                AND run.status = 'queued'
                -- Not now(), which is the start of this transaction: a concurrent enqueue may have
                -- begun later.
                AND run.run_at > greatest(key_conflict.run_at, clock_timestamp())
                THEN run.run_at
        END AS due_at
    FROM jobctl.job_runs AS run
    CROSS JOIN LATERAL (
        -- `existing`, the SQLSTATE of a refusal, or NULL: the run can be replaced.
        SELECT CASE
            WHEN key_conflict.on_conflict = 'error' THEN 'JC009'
            WHEN run.job_type <> job THEN 'JC004'
            WHEN key_conflict.on_conflict = 'replace' THEN NULL
            WHEN run.payload = key_conflict.payload THEN 'existing'
            ELSE 'JC004'
        END
    ) AS found (outcome)
    WHERE run.idempotency_key = key
        AND run.key_scope = key_conflict.key_scope
        -- The condition of the index job_runs_key: other runs do not have their keys any more.
        AND (
            run.key_scope = 'retained'
            OR (run.key_scope = 'live' AND run.status IN ('blocked', 'queued', 'running', 'failed'))
        )
        AND found.outcome IS NOT NULL
$$;
CREATE FUNCTION jobctl.last_line(output text) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $_$
    SELECT (regexp_match(right(output, 1000), '([^\r\n]*\S)\s*$'))[1]
$_$;
CREATE FUNCTION jobctl.limited_runs(worker text, at_most integer, queues text[], excluded_jobs text[], excluded_kinds text[], excluded_runs bigint[], after_definition bigint, after_definitions bigint[], after_shares text[], only_run bigint, OUT ids bigint[], OUT are_last_attempts boolean[], OUT payload_bytes integer[], OUT place_priorities integer[], OUT place_queues text[], OUT place_run_at timestamp with time zone[], OUT place_ids bigint[], OUT skipped_job text, OUT last_definition bigint, OUT last_definitions bigint[], OUT last_shares text[]) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET random_page_cost TO '1.1'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    locked_ids bigint[];
    has_locks boolean;
    full_locks text[] := '{}';
    by_lock record;
    allowed record;
    rates_ahead text;
    -- The first and the last run of the scan of a group: all runs that are due now.
    first_run_at timestamptz := '-infinity';
    first_id bigint := 0;
    last_run_at timestamptz := now();
    last_id bigint := 9223372036854775807;
BEGIN
    has_locks := EXISTS (
        SELECT FROM jobctl.job_definitions AS definition
        WHERE definition.lock_name IS NOT NULL
    ) OR EXISTS (SELECT FROM jobctl.pending_lock_runs);
    IF has_locks THEN
        full_locks := ARRAY(
            SELECT running.lock
            FROM jobctl.running_locks AS running
            WHERE running.runs >= running.most
        );
    END IF;
    -- Step 1.
    WITH looked_at AS MATERIALIZED (
        SELECT definition.*
        FROM jobctl.job_definitions AS definition
        WHERE definition.is_limited AND definition.id > after_definition
            AND (
                only_run IS NULL
                OR definition.name = (
                    SELECT run.job_type
                    FROM jobctl.job_runs AS run
                    WHERE run.id = only_run
                )
            )
        ORDER BY definition.id
        LIMIT 1000
    ),
    with_due_runs AS MATERIALIZED (
        SELECT definition.id, definition.name
        FROM looked_at AS definition
        WHERE definition.name <> ALL (excluded_jobs)
            AND definition.kind <> ALL (excluded_kinds)
            AND coalesce(definition.lock_name <> ALL (full_locks), true)
            -- Leave out definitions whose rate allows no start now, before they cost a lock and a
            -- count. A rate allows the next start `most_at_once - 1` intervals before rate_next_at:
            -- at most one rate_interval from now. A time more than a minute later was written while
            -- the database's clock was ahead, see is_ahead.
            AND coalesce(
                definition.rate_next_at - (definition.most_at_once - 1) * definition.rate_interval
                    NOT BETWEEN now() AND now() + definition.rate_interval + interval '1 minute',
                true
            )
            AND EXISTS (
                SELECT FROM (
                    SELECT
                        run.run_at <= now()
                        AND (cardinality(queues) = 0 OR run.queue = ANY (queues)) AS is_due,
                        row_number() OVER () AS place
                    FROM jobctl.job_runs AS run
                    WHERE run.job_type = definition.name
                        -- Here and below, a condition of the index job_runs_waiting_of_job.
                        AND run.job_type NOT IN ('shell', 'http')
                        AND run.status IN ('queued', 'failed')
                    LIMIT 100
                ) AS first
                -- If there are 100 runs, there may be more, and one of the others may be due.
                WHERE first.is_due OR first.place = 100
            )
        ORDER BY definition.id
        LIMIT 50
    ),
    locked AS MATERIALIZED (
        SELECT
            definition.id,
            -- The time of the next start, computed as above, is more than a minute later than the
            -- rate allows: the database's clock was ahead when rate_next_at was written.
            definition.rate_next_at - (definition.most_at_once - 1) * definition.rate_interval
                > now() + definition.rate_interval + interval '1 minute' AS is_ahead
        FROM jobctl.job_definitions AS definition
        WHERE definition.id = ANY (ARRAY(SELECT with_due_runs.id FROM with_due_runs))
        FOR NO KEY UPDATE SKIP LOCKED
    ),
    -- Rates that are ahead begin again, as if no run had started. Otherwise, none of their runs
    -- could start before the wrong time.
    restarted AS (
        UPDATE jobctl.job_definitions AS definition
        SET rate_next_at = NULL
        WHERE definition.id = ANY (ARRAY(SELECT locked.id FROM locked WHERE locked.is_ahead))
        RETURNING definition.name
    )
    SELECT
        array_agg(locked.id) FILTER (WHERE locked.id IS NOT NULL) AS locked_ids,
        min(with_due_runs.name) FILTER (WHERE locked.id IS NULL) AS skipped_job,
        (
            SELECT string_agg(restarted.name, ', ' ORDER BY restarted.name)
            FROM restarted
        ) AS rates_ahead,
        -- There may be more definitions only if a limit of this call ended the list.
        CASE
            WHEN (SELECT count(*) FROM with_due_runs) = 50 THEN (SELECT max(id) FROM with_due_runs)
            WHEN (SELECT count(*) FROM looked_at) = 1000 THEN (SELECT max(id) FROM looked_at)
        END AS last_definition
    INTO locked_ids, skipped_job, rates_ahead, last_definition
    FROM with_due_runs
    LEFT JOIN locked ON locked.id = with_due_runs.id;
    IF rates_ahead IS NOT NULL THEN
        RAISE WARNING 'jobctl: the rates of these jobs begin again, because the database''s clock '
            'was ahead: %', rates_ahead;
    END IF;
    IF locked_ids IS NULL AND NOT has_locks THEN
        RETURN;
    END IF;
    IF only_run IS NOT NULL THEN
        -- The scan of each group begins and ends with this run. If the run is not due yet, the scan
        -- ends at now(), so it does not find the run.
        SELECT run.run_at, run.id, least(run.run_at, now()), run.id
        INTO first_run_at, first_id, last_run_at, last_id
        FROM jobctl.job_runs AS run
        WHERE run.id = only_run;
    END IF;
    -- Step 2.
    WITH RECURSIVE holds AS MATERIALIZED (
        SELECT hold.scope, hold.name
        FROM jobctl.current_holds AS hold
    ),
    -- The locked definitions that may start runs: `most`, in all shares together.
    limits AS MATERIALIZED (
        SELECT *
        FROM (
            SELECT
                definition.id,
                definition.name,
                definition.max_running_per_share,
                definition.most_at_once_per_share,
                definition.share_interval,
                coalesce(definition.last_share, '') AS last_share,
                -- `least` ignores NULL, which means no limit.
                least(
                    at_most,
                    definition.most_running - (
                        SELECT count(*)
                        FROM jobctl.job_runs AS run
                        WHERE run.status = 'running'
                            AND run.job_type = definition.name
                    ),
                    -- The starts that the rate allows now, by the generic cell rate algorithm
                    -- (ITU-T I.371).
                    definition.most_at_once
                    - ceil(
                        extract(epoch FROM greatest(definition.rate_next_at - now(), interval '0'))
                        / extract(epoch FROM definition.rate_interval)
                    )
                )::integer AS most
            FROM jobctl.job_definitions AS definition
            WHERE definition.id = ANY (locked_ids)
                AND NOT EXISTS (
                    SELECT FROM holds
                    WHERE holds.scope = 'job' AND holds.name = definition.name
                )
        ) AS definition
        WHERE definition.most > 0
    ),
    -- How many groups to read of each definition: 1,000 of all, but at least 50.
    bounds AS MATERIALIZED (
        SELECT greatest(50, 1000 / greatest(count(*), 1)) AS most_groups
        FROM limits
    ),
    -- The groups of each definition, in the order of turns: the first part are the shares after
    -- last_share, the second part the shares up to last_share.
    groups AS (
        -- The row before the first group of a definition. It is never due, because `oldest` is
        -- infinity. Its place_in_share is the limit of 50, so the first probe skips the rest of
        -- this share: the last one that the call before read, or else the share that was claimed
        -- last.
        SELECT
            limits.id,
            limits.name,
            limits.last_share,
            coalesce(after.share, limits.last_share) AS share,
            '' AS queue,
            0 AS priority,
            timestamptz 'infinity' AS oldest,
            coalesce(after.share <= limits.last_share, false) AS is_second_part,
            0 AS place,
            50 AS place_in_share
        FROM limits
        LEFT JOIN unnest(after_definitions, after_shares) AS after (id, share)
            ON after.id = limits.id
        UNION ALL
        -- The next group. After the last group of the first part, next_group is NULL. Then this is
        -- the row before the first group of the second part: an empty share and queue and the
        -- smallest priority sort before every group. This row does not count as a group.
        SELECT
            groups.id,
            groups.name,
            groups.last_share,
            coalesce(next_group.share, ''),
            coalesce(next_group.queue, ''),
            coalesce(next_group.priority, -2147483648),
            coalesce(next_group.run_at, 'infinity'),
            groups.is_second_part OR next_group.share IS NULL,
            groups.place + (next_group.share IS NOT NULL)::integer,
            CASE
                WHEN next_group.share IS NULL THEN 0
                WHEN next_group.share = groups.share THEN groups.place_in_share + 1
                ELSE 1
            END
        FROM groups
        LEFT JOIN LATERAL (
            SELECT
                coalesce(run.share, '') AS share,
                run.queue,
                run.priority,
                run.run_at
            FROM jobctl.job_runs AS run
            WHERE run.status IN ('queued', 'failed')
                AND run.job_type = groups.name
                AND run.job_type NOT IN ('shell', 'http')
                AND (coalesce(run.share, ''), run.queue, run.priority) > (
                    -- After 50 groups of a share, skip the rest: no share has a control character,
                    -- so this text sorts after all groups of the share, and before the next one.
                    groups.share || CASE WHEN groups.place_in_share < 50 THEN '' ELSE E'\x01' END,
                    groups.queue,
                    -- Skip the other priorities of a queue that this tick does not serve. The queue
                    -- is empty in the rows before the groups.
                    CASE
                        WHEN groups.queue = ''
                            OR cardinality(queues) = 0
                            OR groups.queue = ANY (queues)
                            THEN groups.priority
                        ELSE 2147483647
                    END
                )
                AND (NOT groups.is_second_part OR coalesce(run.share, '') <= groups.last_share)
            ORDER BY coalesce(run.share, ''), run.queue, run.priority, run.run_at
            LIMIT 1
        ) AS next_group ON true
        WHERE groups.place < (SELECT bounds.most_groups FROM bounds)
            AND (next_group.share IS NOT NULL OR NOT groups.is_second_part)
    ),
    -- The running runs of each share, for max_running_per_share.
    running AS MATERIALIZED (
        SELECT
            run.job_type,
            coalesce(run.share, '') AS share,
            count(*) AS runs
        FROM jobctl.job_runs AS run
        JOIN limits
            ON limits.name = run.job_type
        WHERE run.status = 'running'
            AND limits.max_running_per_share IS NOT NULL
        GROUP BY run.job_type, coalesce(run.share, '')
    ),
    due_groups AS MATERIALIZED (
        SELECT
            limits.id,
            limits.name,
            limits.last_share,
            limits.most,
            groups.share,
            groups.queue,
            groups.priority,
            -- How many runs of the share may start by its maximum and its rate; NULL: any number.
            least(
                limits.max_running_per_share - coalesce(running.runs, 0),
                limits.most_at_once_per_share - ceil(coalesce(
                    extract(epoch FROM used.next_at - now())
                    / extract(epoch FROM limits.share_interval),
                    0
                ))
            )::bigint AS most_of_share
        FROM groups
        JOIN limits
            ON limits.id = groups.id
        LEFT JOIN running
            ON running.job_type = groups.name
                AND running.share = groups.share
        -- Ignore a later time: it was written while the database's clock was ahead, or when the
        -- rate was lower.
        LEFT JOIN jobctl.job_share_rates AS used
            ON used.definition_id = groups.id
            AND used.share = groups.share
            AND used.next_at BETWEEN now()
                AND now() + limits.most_at_once_per_share * limits.share_interval
        WHERE groups.oldest <= now()
            AND (cardinality(queues) = 0 OR groups.queue = ANY (queues))
            AND NOT EXISTS (
                SELECT FROM holds
                WHERE holds.scope = 'queue' AND holds.name = groups.queue
            )
    ),
    locked AS MATERIALIZED (
        SELECT
            due.id AS definition_id,
            due.last_share,
            due.most,
            due.share,
            due.queue,
            due.priority,
            due.most_of_share,
            pending.id,
            pending.run_at,
            pending.payload_bytes,
            pending.is_last_attempt
        FROM due_groups AS due
        CROSS JOIN LATERAL (
            SELECT
                run.id,
                run.run_at,
                run.payload_bytes,
                run.attempts + 1 >= run.max_attempts + run.uncounted_attempts AS is_last_attempt
            FROM jobctl.job_runs AS run
            WHERE run.status IN ('queued', 'failed')
                AND run.job_type = due.name
                AND run.job_type NOT IN ('shell', 'http')
                AND coalesce(run.share, '') = due.share
                AND run.queue = due.queue
                AND run.priority = due.priority
                AND (run.run_at, run.id) >= (first_run_at, first_id)
                AND (run.run_at, run.id) <= (last_run_at, last_id)
                AND coalesce(run.expires_at > now(), true)
                AND coalesce(run.worker = limited_runs.worker, true)
                AND coalesce(run.lock <> ALL (full_locks), true)
                AND run.id <> ALL (excluded_runs)
                -- A run that took the key of a running run waits for the end of that run.
                AND NOT EXISTS (
                    SELECT FROM jobctl.job_runs AS replaced
                    WHERE replaced.status = 'running'
                        AND replaced.key_scope = 'replaced'
                        AND replaced.idempotency_key = run.idempotency_key
                )
            ORDER BY run.run_at, run.id
            -- Not negative: after a limit was lowered, more runs than it allows may be running.
            LIMIT greatest(
                0,
                least(
                    due.most,
                    due.most_of_share,
                    -- 5,000 runs in all, the same number for each group.
                    (SELECT 5000 / greatest(count(*), 1) + 1 FROM due_groups)
                )
            )
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS pending
    ),
    -- The turn of each run: a share has one run in each turn.
    turns AS (
        SELECT
            locked.*,
            row_number() OVER (
                PARTITION BY locked.definition_id, locked.share
                ORDER BY locked.priority, locked.run_at, locked.id
            ) AS turn
        FROM locked
    ),
    -- The order of the runs of a definition: by turns, and within a turn by shares.
    in_turn AS (
        SELECT
            turns.*,
            row_number() OVER (
                PARTITION BY turns.definition_id
                -- False sorts before true: the shares after last_share come first.
                ORDER BY turns.turn, turns.share <= turns.last_share, turns.share
            )::integer AS place
        FROM turns
        -- Without a limit of the share, most_of_share is NULL.
        WHERE coalesce(turns.turn <= turns.most_of_share, true)
    ),
    -- The first run in turn gets the place of the definition's oldest run, the second one that of
    -- the second oldest, and so on.
    placed AS (
        SELECT
            in_turn.*,
            nth_value(in_turn.priority, in_turn.place) OVER by_age AS place_priority,
            nth_value(in_turn.queue, in_turn.place) OVER by_age AS place_queue,
            nth_value(in_turn.run_at, in_turn.place) OVER by_age AS place_run_at,
            nth_value(in_turn.id, in_turn.place) OVER by_age AS place_id
        FROM in_turn
        WINDOW by_age AS (
            PARTITION BY in_turn.definition_id
            ORDER BY in_turn.priority, in_turn.run_at, in_turn.id
            ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
        )
    )
    SELECT
        array_agg(chosen.id) AS ids,
        array_agg(chosen.is_last_attempt) AS are_last_attempts,
        array_agg(chosen.payload_bytes) AS payload_bytes,
        array_agg(chosen.place_priority) AS place_priorities,
        array_agg(chosen.place_queue) AS place_queues,
        array_agg(chosen.place_run_at) AS place_run_at,
        array_agg(chosen.place_id) AS place_ids,
        -- A definition of which the call read the highest number of groups may have more.
        (
            SELECT array_agg(groups.id ORDER BY groups.id)
            FROM groups
            WHERE groups.place = (SELECT bounds.most_groups FROM bounds)
        ) AS last_definitions,
        (
            SELECT array_agg(groups.share ORDER BY groups.id)
            FROM groups
            WHERE groups.place = (SELECT bounds.most_groups FROM bounds)
        ) AS last_shares
    INTO
        ids,
        are_last_attempts,
        payload_bytes,
        place_priorities,
        place_queues,
        place_run_at,
        place_ids,
        last_definitions,
        last_shares
    FROM (
        SELECT *
        FROM placed
        WHERE placed.place <= placed.most
        ORDER BY placed.definition_id, placed.place
    ) AS chosen;
    IF NOT has_locks THEN
        RETURN;
    END IF;
    -- Step 3, the runs with a lock of their own.
    WITH RECURSIVE groups AS (
        -- The row before the first group, as above: its lock is the last one that the call before
        -- read, and it is never due.
        SELECT
            coalesce(
                (
                    SELECT after.lock
                    FROM unnest(after_definitions, after_shares) AS after (definition_id, lock)
                    WHERE after.definition_id = 0
                ),
                ''
            ) COLLATE "C" AS lock,
            '' AS queue,
            0 AS priority,
            timestamptz 'infinity' AS oldest,
            0 AS place,
            50 AS place_in_lock
        WHERE only_run IS NULL
        UNION ALL
        -- For only_run, the only group. Its place is the limit of 1,000, so no group follows it.
        SELECT
            run.lock COLLATE "C",
            run.queue,
            run.priority,
            run.run_at,
            1000 AS place,
            1 AS place_in_lock
        FROM jobctl.job_runs AS run
        WHERE run.id = only_run
            AND run.lock IS NOT NULL
        UNION ALL
        SELECT
            next_group.lock,
            next_group.queue,
            next_group.priority,
            next_group.run_at,
            groups.place + 1,
            CASE WHEN next_group.lock = groups.lock THEN groups.place_in_lock + 1 ELSE 1 END
        FROM groups
        CROSS JOIN LATERAL (
            SELECT run.lock, run.queue, run.priority, run.run_at
            FROM jobctl.pending_lock_runs AS run
            WHERE (run.lock, run.queue, run.priority) > (
                -- Skip the rest of a lock that is taken or has had 50 groups: no lock has a control
                -- character, so this text sorts after all groups of the lock.
                groups.lock || CASE
                    WHEN groups.place_in_lock < 50 AND groups.lock <> ALL (full_locks) THEN ''
                    ELSE E'\x01'
                END,
                groups.queue,
                groups.priority
            )
            ORDER BY run.lock, run.queue, run.priority, run.run_at
            LIMIT 1
        ) AS next_group
        WHERE groups.place < 1000
    ),
    -- Jobs whose runs must not start, or were found above, because their definition is limited.
    left_out AS MATERIALIZED (
        SELECT unnest(excluded_jobs) AS job_type
        UNION ALL
        SELECT definition.name
        FROM jobctl.job_definitions AS definition
        WHERE definition.is_limited OR definition.kind = ANY (excluded_kinds)
        UNION ALL
        SELECT hold.name
        FROM jobctl.current_holds AS hold
        WHERE hold.scope = 'job'
    ),
    due_groups AS MATERIALIZED (
        SELECT groups.lock, groups.queue, groups.priority
        FROM groups
        WHERE groups.oldest <= now()
            AND groups.lock <> ALL (full_locks)
            AND (cardinality(queues) = 0 OR groups.queue = ANY (queues))
            AND groups.queue <> ALL (ARRAY(
                SELECT hold.name
                FROM jobctl.current_holds AS hold
                WHERE hold.scope = 'queue'
            ))
    ),
    -- is_within: among the first runs of its lock, as many as may run with the lock.
    claimable AS MATERIALIZED (
        SELECT
            pending.id,
            pending.priority,
            pending.run_at,
            row_number() OVER (
                PARTITION BY due.lock
                ORDER BY pending.priority, pending.run_at, pending.id
            ) <= jobctl.most_with_lock(due.lock) AS is_within
        FROM due_groups AS due
        CROSS JOIN LATERAL (
            SELECT run.id, run.priority, run.run_at
            FROM jobctl.pending_lock_runs AS run
            WHERE run.lock = due.lock
                AND run.queue = due.queue
                AND run.priority = due.priority
                AND (run.run_at, run.id) >= (first_run_at, first_id)
                AND (run.run_at, run.id) <= (last_run_at, last_id)
                AND coalesce(run.expires_at > now(), true)
                AND coalesce(run.worker = limited_runs.worker, true)
                AND run.id <> ALL (excluded_runs)
                AND NOT coalesce(
                    run.job_type IN (SELECT left_out.job_type FROM left_out),
                    false
                )
                -- A run that took the key of a running run waits for the end of that run.
                AND NOT EXISTS (
                    SELECT FROM jobctl.job_runs AS replaced
                    WHERE replaced.status = 'running'
                        AND replaced.key_scope = 'replaced'
                        AND replaced.idempotency_key = run.idempotency_key
                )
            ORDER BY run.run_at, run.id
            LIMIT least(at_most, jobctl.most_with_lock(due.lock))
        ) AS pending
    ),
    -- Locks at most at_most runs of all locks together, so that other claims can take the rest.
    locked AS MATERIALIZED (
        SELECT unlocked.*
        FROM (
            SELECT claimable.id
            FROM claimable
            WHERE claimable.is_within
            ORDER BY claimable.priority, claimable.run_at, claimable.id
        ) AS chosen
        CROSS JOIN LATERAL (
            SELECT
                run.id,
                run.attempts + 1 >= run.max_attempts + run.uncounted_attempts AS is_last_attempt,
                run.payload_bytes,
                run.priority,
                run.queue,
                run.run_at
            FROM jobctl.job_runs AS run
            WHERE run.id = chosen.id
                AND run.status IN ('queued', 'failed')
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS unlocked
        LIMIT at_most
    )
    SELECT
        array_agg(locked.id) AS ids,
        array_agg(locked.is_last_attempt) AS are_last_attempts,
        array_agg(locked.payload_bytes) AS payload_bytes,
        array_agg(locked.priority) AS priorities,
        array_agg(locked.queue) AS queues,
        array_agg(locked.run_at) AS run_at,
        (
            SELECT max(groups.lock)
            FROM groups
            WHERE groups.place = 1000
                AND only_run IS NULL
        ) AS last_lock
    INTO by_lock
    FROM locked;
    IF by_lock.last_lock IS NOT NULL THEN
        -- The id 0 means that the share is a lock.
        last_definitions := last_definitions || 0::bigint;
        last_shares := last_shares || by_lock.last_lock;
    END IF;
    -- Step 4, for the runs of both lists, in the order of their places.
    SELECT found.*
    INTO allowed
    FROM jobctl.within_locks(
        ARRAY(
            SELECT candidate.id
            FROM unnest(
                ids || by_lock.ids,
                place_priorities || by_lock.priorities,
                place_run_at || by_lock.run_at,
                place_ids || by_lock.ids
            ) AS candidate (id, priority, run_at, place_id)
            ORDER BY candidate.priority, candidate.run_at, candidate.place_id
        )
    ) AS found;
    skipped_job := coalesce(skipped_job, allowed.skipped_job);
    SELECT
        array_agg(chosen.id ORDER BY chosen.place),
        array_agg(chosen.is_last_attempt ORDER BY chosen.place),
        array_agg(chosen.payload_bytes ORDER BY chosen.place),
        array_agg(chosen.priority ORDER BY chosen.place),
        array_agg(chosen.queue ORDER BY chosen.place),
        array_agg(chosen.run_at ORDER BY chosen.place),
        array_agg(chosen.place_id ORDER BY chosen.place)
    INTO
        ids,
        are_last_attempts,
        payload_bytes,
        place_priorities,
        place_queues,
        place_run_at,
        place_ids
    FROM unnest(
        ids || by_lock.ids,
        are_last_attempts || by_lock.are_last_attempts,
        payload_bytes || by_lock.payload_bytes,
        place_priorities || by_lock.priorities,
        place_queues || by_lock.queues,
        place_run_at || by_lock.run_at,
        place_ids || by_lock.ids
    ) WITH ORDINALITY
        AS chosen (id, is_last_attempt, payload_bytes, priority, queue, run_at, place_id, place)
    WHERE chosen.id = ANY (allowed.runs);
END
$$;
CREATE TABLE jobctl.job_schedules (
    id bigint NOT NULL,
    name text NOT NULL,
    definition_id bigint NOT NULL,
    schedule text NOT NULL,
    time_zone text NOT NULL,
    payload jsonb NOT NULL,
    share text COLLATE pg_catalog."C",
    starts_at timestamp with time zone,
    ends_at timestamp with time zone,
    next_run_at timestamp with time zone,
    put_off_until timestamp with time zone,
    skipped_fires bigint DEFAULT 0 NOT NULL,
    due_at timestamp with time zone GENERATED ALWAYS AS (COALESCE(put_off_until, next_run_at, '-infinity'::timestamp with time zone)) STORED NOT NULL,
    owner text DEFAULT SESSION_USER NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT name_is_1_to_255_bytes CHECK (((octet_length(name) >= 1) AND (octet_length(name) <= 255))),
    CONSTRAINT schedule_is_short CHECK ((octet_length(schedule) <= 1000)),
    CONSTRAINT times_are_dates CHECK (((LEAST(starts_at, ends_at, next_run_at, put_off_until, created_at, updated_at) >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (GREATEST(starts_at, ends_at, next_run_at, put_off_until, created_at, updated_at) < '10000-01-01 00:00:00+00'::timestamp with time zone)))
)
WITH (autovacuum_vacuum_scale_factor='0.05');
CREATE FUNCTION jobctl.lock_schedule(name text, caller name) RETURNS jobctl.job_schedules
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    stored jobctl.job_schedules;
BEGIN
    SELECT * INTO stored
    FROM jobctl.job_schedules AS locked
    WHERE locked.name = lock_schedule.name
    FOR UPDATE;
    -- Without such a schedule, the owner is NULL, and the condition is not true.
    IF stored.owner <> SESSION_USER
        AND pg_has_role(caller, to_regrole(quote_ident(stored.owner)), 'USAGE') IS NOT TRUE
        AND jobctl.is_operator(caller) IS NOT TRUE
    THEN
        RAISE EXCEPTION USING
            ERRCODE = '42501',
            MESSAGE = format('schedule `%s` belongs to another login', name),
            DETAIL = name;
    END IF;
    RETURN stored;
END
$$;
CREATE FUNCTION jobctl.lock_slot(lock text) RETURNS integer
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT pg_catalog.hashtext(lock) & 255
$$;
CREATE FUNCTION jobctl.mark_followers(runs bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
DECLARE
    awaited bigint[];
BEGIN
    WITH marked AS (
        UPDATE jobctl.job_dependencies AS dependency
        SET state = 'due'
        WHERE dependency.after_id = ANY (runs)
            AND dependency.state IN ('open', 'stuck')
        RETURNING dependency.after_id
    )
    SELECT coalesce(array_agg(DISTINCT marked.after_id), '{}') INTO awaited FROM marked;
    RETURN awaited;
END
$$;
CREATE FUNCTION jobctl.may_settle(role name, recorded_by text) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT jobctl.is_operator(role)
        OR coalesce(pg_has_role(role, to_regrole(quote_ident(recorded_by)), 'USAGE'), false)
$$;
CREATE FUNCTION jobctl.most_with_lock(lock text) RETURNS integer
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT coalesce(min(definition.lock_most), 1)
    FROM jobctl.job_definitions AS definition
    WHERE definition.lock_name = most_with_lock.lock
        AND definition.enabled
$$;
CREATE FUNCTION jobctl.name_incident() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
BEGIN
    IF NEW.outcome NOT IN ('failed', 'lease_expired') THEN
        NEW.cause := NULL;
        NEW.incident := NULL;
        RETURN NEW;
    END IF;
    NEW.cause := jobctl.failure_cause(NEW.error_type, NEW.error, NEW.output);
    SELECT other.incident
    INTO NEW.incident
    FROM jobctl.job_attempts AS other
    WHERE other.incident IS NOT NULL
        AND other.cause = NEW.cause
        AND other.error_type IS NOT DISTINCT FROM NEW.error_type
        AND other.finished_at
            BETWEEN NEW.finished_at - interval '30 minutes'
            AND NEW.finished_at + interval '30 minutes'
        -- During an UPDATE, the table still has the old row of this attempt.
        AND (other.run_id, other.attempt) <> (NEW.run_id, NEW.attempt)
    ORDER BY other.finished_at DESC
    LIMIT 1;
    NEW.incident := coalesce(NEW.incident, NEW.run_id || '.' || NEW.attempt);
    RETURN NEW;
END
$$;
CREATE FUNCTION jobctl.next_time(at time without time zone, days text DEFAULT '*'::text, time_zone text DEFAULT 'UTC'::text, after timestamp with time zone DEFAULT now()) RETURNS timestamp with time zone
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET "TimeZone" TO 'UTC'
    AS $_$
DECLARE
    day_form CONSTANT text :=
        '(lw?|(mon|tue|wed|thu|fri|sat|sun)(#[1-5]|l|-(mon|tue|wed|thu|fri|sat|sun))?)';
    reason text;
    zone_name text;
    shown timestamp;
    -- The differences to UTC before and after a clock change near the time; equal without a change.
    early interval;
    late interval;
    lower_bound timestamptz;
    middle timestamptz;
    result timestamptz;
BEGIN
    reason := CASE
        WHEN num_nulls(at, days, time_zone, after) > 0
            THEN 'an argument is NULL'
        WHEN at = '24:00'
            THEN 'at is out of range; allowed are 00:00 to 23:59:59'
        WHEN lower(days COLLATE "C")
                !~ replace('^([*]|DAY(,DAY)*)$', 'DAY', day_form)
            THEN 'days must be *, or days like mon,wed, mon-fri, mon#1, friL, L or LW'
        -- The search below begins a day before `after` and ends up to 190 days later.
        WHEN after < '0001-01-02 00:00Z'
            OR after >= CASE
                WHEN days ~* '[#l]' THEN '9999-06-01 00:00Z'
                ELSE '9999-12-01 00:00Z'
            END::timestamptz
            THEN 'after is out of range; allowed are the years 1 to 9999'
    END;
    -- Accept the names that `apply` accepts: those of the files of the zone data, in their case,
    -- see src/zone_data.rs of the crate cron-zone.
    -- PostgreSQL also accepts a name in another case, and rules such as CEST-2. The setting then
    -- shows the name of the file, or the rule in capitals. So the comparison below rejects names in
    -- another case, and rules with small letters. The patterns reject the other rules: texts with a
    -- digit and without a small letter, except the names of files that look like this.
    -- pg_timezone_names would read 1,200 files.
    IF reason IS NULL AND time_zone <> 'UTC' THEN
        IF time_zone ~ '^[A-Z][A-Za-z0-9_+-]*(/[A-Z][A-Za-z0-9_+-]*)*$'
            AND (
                time_zone ~ '[a-z]|^[^0-9]+$'
                OR time_zone ~ '^(CST6CDT|EST5EDT|MST7MDT|PST8PDT|GMT[+-]?0)$'
            )
        THEN
            BEGIN
                zone_name := set_config('TimeZone', time_zone, true);
            EXCEPTION WHEN invalid_parameter_value THEN
                zone_name := NULL;
            END;
        END IF;
        IF zone_name IS DISTINCT FROM time_zone THEN
            reason := format(
                'there is no time zone `%s`; write a name such as Europe/Berlin, or UTC',
                left(time_zone, 64)
            );
        END IF;
    END IF;
    IF reason IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'cannot compute a time: ' || reason;
    END IF;
    -- Begin a day earlier: if the clock skips a whole day, a time on that day becomes the end of
    -- the gap, which may be later than `after`.
    FOR shown IN
        SELECT candidate.day + next_time.at
        FROM generate_series(
            date_trunc('day', after AT TIME ZONE time_zone) - interval '1 day',
            -- Every day of the week comes within 9 days. But several months in a row can lack a
            -- fifth Monday.
            after AT TIME ZONE time_zone
                + CASE WHEN days ~* '[#l]' THEN interval '190 days' ELSE interval '9 days' END,
            '1 day'
        ) AS candidate (day)
        WHERE days = '*'
            OR EXISTS (
                SELECT
                FROM unnest(string_to_array(lower(days COLLATE "C"), ',')) AS part
                WHERE jobctl.is_on_day(candidate.day, part)
            )
        ORDER BY candidate.day
    LOOP
        -- No zone differs from UTC by more than 16 hours, so these two instants are before and
        -- after the one at which the clock shows this time.
        middle := shown AT TIME ZONE 'UTC' - interval '16 hours';
        early := middle AT TIME ZONE time_zone - middle AT TIME ZONE 'UTC';
        middle := shown AT TIME ZONE 'UTC' + interval '16 hours';
        late := middle AT TIME ZONE time_zone - middle AT TIME ZONE 'UTC';
        SELECT min(candidate.instant) INTO result
        FROM (VALUES
            ((shown - early) AT TIME ZONE 'UTC'),
            ((shown - late) AT TIME ZONE 'UTC')
        ) AS candidate (instant)
        WHERE candidate.instant AT TIME ZONE time_zone = shown;
        IF result IS NULL THEN
            -- The clock skips this time. Find the second of the clock change between the two times
            -- by bisection.
            lower_bound := date_trunc('second', (shown - late) AT TIME ZONE 'UTC');
            result := date_trunc('second', (shown - early) AT TIME ZONE 'UTC');
            WHILE result - lower_bound > interval '1 second' LOOP
                middle := date_trunc('second', lower_bound + (result - lower_bound) / 2);
                IF middle AT TIME ZONE time_zone - middle AT TIME ZONE 'UTC' = early THEN
                    lower_bound := middle;
                ELSE
                    result := middle;
                END IF;
            END LOOP;
        END IF;
        IF result > after THEN
            RETURN result;
        END IF;
    END LOOP;
END
$_$;
CREATE FUNCTION jobctl.note_predecessors(runs bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    noted_runs bigint[];
BEGIN
    WITH inserted AS (
        INSERT INTO jobctl.job_predecessors AS new (
            definition_id,
            scheduled_for,
            job_type,
            run_id
        )
        SELECT following.id, planned.scheduled_for, run.job_type, run.id
        FROM jobctl.job_runs AS run
        -- A run of an application's schedule counts as one without a scheduled time, because its
        -- times are not those of the other jobs.
        CROSS JOIN LATERAL (
            SELECT CASE WHEN run.schedule IS NULL THEN run.scheduled_for END AS scheduled_for
        ) AS planned
        JOIN jobctl.job_definitions AS following ON run.job_type = ANY (following.after)
        WHERE run.id = ANY (runs)
            -- The condition of the index job_definitions_following.
            AND following.after IS NOT NULL
            AND CASE
                WHEN planned.scheduled_for IS NOT NULL THEN run.finished_at IS NULL
                WHEN following.when = 'any_end' THEN run.finished_at IS NOT NULL
                ELSE run.status = 'succeeded'
            END
        RETURNING new.run_id
    )
    SELECT coalesce(array_agg(DISTINCT inserted.run_id), '{}') INTO noted_runs FROM inserted;
    RETURN noted_runs;
END
$$;
CREATE FUNCTION jobctl.read_json(text text) RETURNS jsonb
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    RETURN text::jsonb;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN NULL;
END
$$;
CREATE FUNCTION jobctl.record_alerts(host_user text, delivery text, jobs text[], details text[]) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    AS $$
    INSERT INTO jobctl.job_events (action, job, recorded_by, host_user, reason, detail)
    SELECT
        'alert',
        alert.job,
        SESSION_USER,
        left(record_alerts.host_user, 1000),
        left(record_alerts.delivery, 1000),
        left(alert.detail, 1000)
    FROM unnest(jobs, details) AS alert (job, detail)
$$;
CREATE FUNCTION jobctl.record_effect(key text, result text DEFAULT NULL::text, run_id bigint DEFAULT NULL::bigint, attempt integer DEFAULT NULL::integer, caller jobctl.caller DEFAULT CURRENT_USER) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    SET lock_timeout TO '2s'
    AS $_$
DECLARE
    recorded record;
BEGIN
    IF octet_length(record_effect.result) > 8192 THEN
        RAISE EXCEPTION 'result is longer than 8 KiB'
            USING ERRCODE = '22023';
    END IF;
    IF record_effect.key ~ '^ *$' THEN
        RAISE EXCEPTION 'key must be 1 to 255 bytes, not all blanks'
            USING ERRCODE = '22023';
    END IF;
    FOR try IN 1..5 LOOP
        BEGIN
            INSERT INTO jobctl.job_effects (key, result, run_id, attempt, recorded_by, completed_at)
            VALUES (
                record_effect.key,
                record_effect.result,
                record_effect.run_id,
                record_effect.attempt,
                caller,
                now()
            )
            ON CONFLICT DO NOTHING;
        -- Raise only the message: the DETAIL of a constraint's error shows the row.
        EXCEPTION WHEN integrity_constraint_violation THEN
            RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = SQLERRM;
        END;
        IF FOUND THEN
            RETURN true;
        END IF;
        SELECT effect.* INTO recorded
        FROM jobctl.job_effects AS effect
        WHERE effect.key = record_effect.key;
        IF FOUND AND jobctl.is_own_effect(caller, recorded.recorded_by) IS NOT TRUE THEN
            RAISE EXCEPTION 'effect `%` was recorded by another role; an operator can settle it',
                key
                USING ERRCODE = '42501';
        ELSIF recorded.completed_at IS NOT NULL THEN
            RETURN false;
        -- In the caller's own attempt, the key is open, not in use.
        ELSIF (recorded.run_id, recorded.attempt) IS DISTINCT FROM (run_id, attempt)
            AND jobctl.is_running(recorded.run_id, recorded.attempt)
        THEN
            RAISE EXCEPTION 'effect `%` is in use by run %, which is running; '
                'try again after its end',
                key,
                recorded.run_id
                USING ERRCODE = '55P03';
        ELSIF recorded.key IS NOT NULL THEN
            RAISE EXCEPTION 'effect `%` was begun, and it is unknown whether it happened; '
                'settle it with `jobctl once --settle`',
                key
                USING ERRCODE = '55000';
        END IF;
        -- The effect was removed between the two statements, so try again. Or a trigger skips the
        -- row, which require_written reports in the end.
    END LOOP;
    PERFORM jobctl.require_written('job_effects', chosen => 1, written => 0);
END
$_$;
CREATE FUNCTION jobctl.refuse_update() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    RAISE EXCEPTION '% of run % can only %', TG_ARGV[0], OLD.id, TG_ARGV[1]
        USING ERRCODE = 'check_violation', CONSTRAINT = TG_NAME;
END
$$;
CREATE FUNCTION jobctl.regular_workers(names text[]) RETURNS text[]
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT coalesce(array_agg(worker.worker ORDER BY worker.worker), '{}')
    FROM jobctl.job_workers AS worker
    JOIN jobctl.seen_workers AS seen ON seen.worker = worker.worker
    WHERE seen.seen_at > now() - interval '1 hour'
        AND worker.previous_tick_at IS NOT NULL
        AND NOT EXISTS (
            SELECT FROM jobctl.current_holds AS hold
            WHERE hold.scope = 'worker'
                AND hold.name = worker.worker
                AND hold.held_until IS NULL
        )
        AND (
            regular_workers.names IS NULL
            OR EXISTS (
                SELECT FROM unnest(regular_workers.names) AS pattern
                -- Escapes the special characters of LIKE, and then replaces * by %.
                WHERE worker.worker LIKE
                    translate(regexp_replace(pattern, '[\\%_]', '\\\&', 'g'), '*', '%')
            )
        )
$$;
CREATE FUNCTION jobctl.release_right(worker text, tick text) RETURNS void
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
UPDATE jobctl.job_workers AS holder
SET
    claiming_tick = NULL,
    claiming_until = NULL
WHERE holder.worker = release_right.worker
    AND holder.claiming_tick = release_right.tick
$$;
CREATE FUNCTION jobctl.renew_leases(worker text, runs bigint[], attempt_numbers integer[], claim_times timestamp with time zone[], lease double precision) RETURNS TABLE(id bigint, attempt integer, claimed_at timestamp with time zone, renewed boolean, held boolean, cancel_requested boolean)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
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
CREATE FUNCTION jobctl.reopen_dependencies(runs bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    AS $$
BEGIN
    UPDATE jobctl.job_dependencies AS dependency
    SET state = 'due'
    FROM jobctl.job_runs AS predecessor
    JOIN jobctl.job_runs AS run
        ON run.id = ANY (runs)
        AND run.status = 'cancelled'
    WHERE dependency.run_id = run.id
        AND dependency.after_id = predecessor.id
        AND dependency.state = 'met'
        AND dependency.rule = 'any_end'
        -- If the predecessor succeeded once, the row stays met.
        AND jobctl.succeeded_attempt(predecessor.id) IS NULL;
    RETURN ARRAY(
        SELECT DISTINCT dependency.run_id
        FROM jobctl.job_dependencies AS dependency
        WHERE dependency.run_id = ANY (runs)
            AND dependency.state <> 'met'
    );
END
$$;
CREATE FUNCTION jobctl.replace_waiting(job text, key text, payload jsonb, run_at timestamp with time zone, debounce_max interval, expires_at timestamp with time zone, share text, lock text, worker text, traceparent text, takes_key boolean) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    replaced bigint;
BEGIN
    UPDATE jobctl.job_runs AS run
    SET
        payload = replace_waiting.payload,
        run_at = greatest(
            least(replace_waiting.run_at, run.created_at + replace_waiting.debounce_max),
            -- A due run keeps its place in the order of claims. No other run gets a past time,
            -- which would put it before runs that are due already.
            least(run.run_at, now()),
            -- The end of the backoff. `greatest` ignores the NULL of other runs.
            CASE run.status WHEN 'failed' THEN run.run_at END
        ),
        expires_at = replace_waiting.expires_at,
        share = coalesce(replace_waiting.share, run.share),
        lock = coalesce(replace_waiting.lock, run.lock),
        worker = coalesce(replace_waiting.worker, run.worker),
        traceparent = coalesce(replace_waiting.traceparent, run.traceparent),
        enqueued_by = SESSION_USER,
        updated_at = now()
    WHERE run.idempotency_key = replace_waiting.key
        AND run.key_scope = 'live'
        AND run.status IN ('blocked', 'queued', 'failed')
        AND run.job_type = replace_waiting.job
    RETURNING run.id INTO replaced;
    IF NOT FOUND AND takes_key THEN
        UPDATE jobctl.job_runs AS run
        SET
            key_scope = 'replaced',
            updated_at = now()
        WHERE run.idempotency_key = replace_waiting.key
            AND run.key_scope = 'live'
            AND run.status = 'running'
            AND run.job_type = replace_waiting.job;
    END IF;
    RETURN replaced;
EXCEPTION WHEN integrity_constraint_violation THEN
    -- Raise the error without its DETAIL, which shows the row with its payload to the caller and in
    -- the server's log.
    RAISE EXCEPTION USING ERRCODE = SQLSTATE, MESSAGE = SQLERRM;
END
$$;
CREATE FUNCTION jobctl.require_written(table_name text, chosen bigint, written bigint) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF written < chosen THEN
        RAISE EXCEPTION 'a trigger of jobctl.% skips the row', table_name;
    END IF;
    RETURN true;
END
$$;
CREATE FUNCTION jobctl.result(run bigint, caller jobctl.caller DEFAULT CURRENT_USER) RETURNS TABLE(id bigint, status text, finished_at timestamp with time zone, output text, output_truncated boolean, result jsonb)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT * FROM jobctl.results(ARRAY[run], caller)
$$;
CREATE FUNCTION jobctl.results(runs bigint[], caller jobctl.caller DEFAULT CURRENT_USER) RETURNS TABLE(id bigint, status text, finished_at timestamp with time zone, output text, output_truncated boolean, result jsonb)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    AS $$
    SELECT
        run.id,
        run.status,
        run.finished_at,
        attempt.output,
        coalesce(attempt.output_truncated, false),
        -- The output is stdout, followed by a line `--- stderr ---` and stderr if there is any.
        CASE
            WHEN run.status = 'succeeded' AND definition.result = 'json'
                THEN jobctl.read_json(split_part(attempt.output, E'--- stderr ---\n', 1))
        END
    FROM jobctl.job_runs AS run
    LEFT JOIN jobctl.job_attempts AS attempt
        ON attempt.run_id = run.id
        AND attempt.attempt = run.attempts
    LEFT JOIN jobctl.job_definitions AS definition ON definition.name = run.job_type
    -- An array makes the planner use the index: it expects a thousand rows from a function.
    WHERE run.id = ANY (ARRAY(
        SELECT visible.id
        FROM jobctl.visible_runs(
            runs,
            caller,
            has_column_privilege(caller, 'jobctl.job_attempts', 'output', 'SELECT')
        ) AS visible
    ))
$$;
CREATE FUNCTION jobctl.run_states(runs bigint[], caller jobctl.caller DEFAULT CURRENT_USER) RETURNS TABLE(id bigint, job text, status text, attempts integer, error_type text, exit_code integer, signal integer, stuck boolean)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    AS $$
    SELECT
        run.id,
        run.job_type,
        run.status,
        run.attempts,
        run.error_type,
        attempt.exit_code,
        attempt.signal,
        run.status = 'blocked'
            AND (
                stuck.id IS NOT NULL
                -- The rows that say for which runs this run waits are lost.
                OR NOT EXISTS (
                    SELECT FROM jobctl.job_dependencies AS dependency
                    WHERE dependency.run_id = run.id
                        AND dependency.state <> 'met'
                )
            )
    FROM jobctl.job_runs AS run
    LEFT JOIN jobctl.job_attempts AS attempt
        ON attempt.run_id = run.id
        AND attempt.attempt = run.attempts
    LEFT JOIN jobctl.stuck_predecessor(ARRAY(
        SELECT blocked.id
        FROM jobctl.job_runs AS blocked
        WHERE blocked.id = ANY (runs)
            AND blocked.status = 'blocked'
    )) AS stuck ON stuck.run_id = run.id
    -- An array makes the planner use the index: it expects a thousand rows from a function.
    WHERE run.id = ANY (ARRAY(
        SELECT visible.id
        FROM jobctl.visible_runs(
            runs,
            caller,
            has_column_privilege(caller, 'jobctl.job_runs', 'status', 'SELECT')
        ) AS visible
    ))
$$;
CREATE FUNCTION jobctl.run_time_trend(job text, timeout interval, OUT average double precision, OUT average_before double precision, OUT days integer, OUT days_to_timeout double precision) RETURNS record
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT
        newest.seconds,
        older.seconds,
        newest.day - older.day,
        CASE
            WHEN newest.seconds > older.seconds AND extract(epoch FROM "timeout") > newest.seconds
                THEN (extract(epoch FROM "timeout") - newest.seconds)
                    / ((newest.seconds - older.seconds) / (newest.day - older.day))
        END
    FROM (
        SELECT figures.day, figures.run_time_seconds / figures.succeeded AS seconds
        FROM jobctl.daily_figures AS figures
        WHERE figures.job_type = run_time_trend.job
            AND figures.succeeded > 0
            -- Read two months: for a job that last ran before that, a trend is not worth reading a
            -- year of figures.
            AND figures.day > (now() AT TIME ZONE 'UTC')::date - 62
        ORDER BY figures.day DESC
        LIMIT 1
    ) AS newest
    LEFT JOIN LATERAL (
        SELECT figures.day, figures.run_time_seconds / figures.succeeded AS seconds
        FROM jobctl.daily_figures AS figures
        WHERE figures.job_type = run_time_trend.job
            AND figures.succeeded > 0
            -- Not only the day a week earlier, because a job may not run each day.
            AND figures.day BETWEEN newest.day - 13 AND newest.day - 7
        ORDER BY figures.day DESC
        LIMIT 1
    ) AS older
        ON abs(newest.seconds - older.seconds) >= greatest(1, older.seconds / 5)
        AND older.seconds > 0
$$;
CREATE FUNCTION jobctl.schedule(name text, job text, schedule text, time_zone text DEFAULT 'UTC'::text, payload jsonb DEFAULT '{}'::jsonb, share text DEFAULT NULL::text, starts timestamp with time zone DEFAULT NULL::timestamp with time zone, ends timestamp with time zone DEFAULT NULL::timestamp with time zone, caller jobctl.caller DEFAULT CURRENT_USER) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    SET lock_timeout TO '2s'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
#variable_conflict use_variable
DECLARE
    most CONSTANT integer := 100000;
    definition jobctl.job_definitions;
    stored jobctl.job_schedules;
    refusal record;
    reason text;
    has_same_times boolean;
    keeps_next_time boolean;
BEGIN
    time_zone := coalesce(time_zone, 'UTC');
    payload := coalesce(payload, '{}');
    SELECT * INTO definition FROM jobctl.job_definitions AS known WHERE known.name = job;
    refusal := jobctl.enqueue_refusal(job, definition, NULL, NULL, caller);
    IF refusal.code IS NULL THEN
        reason := CASE
            WHEN name IS NULL THEN 'name is NULL'
            WHEN ends <= greatest(starts, now()) THEN 'ends must be later than now and starts'
            -- Not up to 9999, because some expressions have no time for decades.
            WHEN starts >= '9900-01-01 00:00Z'
                THEN 'starts is out of range; allowed are the years 1 to 9899'
            WHEN ends >= '10000-01-01 00:00Z'
                THEN 'ends is out of range; allowed are the years 1 to 9999'
        END;
        reason := coalesce(reason, jobctl.wrong_value(
            definition => definition,
            payload => payload,
            payload_bytes => octet_length(payload::text),
            key => name,
            run_at => starts,
            run_in => NULL,
            queue => NULL,
            max_attempts => NULL,
            timeout => NULL,
            backoff => NULL,
            is_backoff => NULL,
            key_scope => NULL,
            on_conflict => NULL,
            debounce => NULL,
            debounce_max => NULL,
            expires_in => NULL,
            share => share,
            lock => NULL,
            worker => NULL,
            traceparent => NULL,
            caller => caller
        ));
        -- The texts of wrong_value name its parameters. Name those of this function instead.
        reason := regexp_replace(regexp_replace(reason, '^key', 'name'), '^run_at', 'starts');
        reason := coalesce(reason, jobctl.schedule_error(schedule, time_zone));
        IF reason IS NOT NULL THEN
            refusal.code := '22023';
            refusal.reason := reason;
        END IF;
    END IF;
    -- Tries again if another session has stored or deleted the schedule between two statements.
    FOR try IN 1..5 LOOP
        EXIT WHEN refusal.code IS NOT NULL;
        stored := jobctl.lock_schedule(name, caller);
        IF (
            stored.definition_id, stored.schedule, stored.time_zone, stored.payload, stored.share,
            stored.starts_at, stored.ends_at
        ) IS NOT DISTINCT FROM (
            definition.id, schedule, time_zone, payload, share, starts, ends
        ) THEN
            -- Lets the next tick try a schedule again that could not be fired.
            UPDATE jobctl.job_schedules AS unchanged
            SET put_off_until = NULL
            WHERE unchanged.id = stored.id
                AND unchanged.put_off_until IS NOT NULL;
            RETURN 'unchanged';
        ELSIF stored.id IS NOT NULL THEN
            has_same_times := (
                stored.definition_id, stored.schedule, stored.time_zone, stored.starts_at
            ) IS NOT DISTINCT FROM (definition.id, schedule, time_zone, starts);
            -- NULL, if no tick has computed the next time yet, counts as false.
            keeps_next_time := stored.definition_id = definition.id
                AND stored.next_run_at
                    BETWEEN coalesce(starts, '-infinity') AND coalesce(ends, 'infinity')
                AND (stored.next_run_at <= now() OR has_same_times);
            UPDATE jobctl.job_schedules AS replaced
            SET
                definition_id = definition.id,
                schedule = schedule.schedule,
                time_zone = schedule.time_zone,
                payload = schedule.payload,
                share = schedule.share,
                starts_at = starts,
                ends_at = ends,
                next_run_at = CASE WHEN keeps_next_time THEN replaced.next_run_at END,
                put_off_until = NULL,
                -- If there is no next time, the next tick computes the first time after updated_at.
                -- If no tick has done that yet, updated_at stays, so that times since the schedule
                -- was first stored are not lost.
                updated_at = CASE
                    WHEN has_same_times AND replaced.next_run_at IS NULL THEN replaced.updated_at
                    ELSE now()
                END
            WHERE replaced.id = stored.id;
            PERFORM jobctl.require_written(
                'job_schedules', chosen => 1, written => FOUND::integer
            );
            RETURN CASE
                WHEN keeps_next_time THEN 'replaced'
                ELSE 'replaced; the next tick computes the next time'
            END;
        END IF;
        -- Counts the schedules of the login only if there may be so many: with unique ids, the
        -- smallest and the largest of `most` ids differ by at least most - 1.
        IF (
            SELECT max(own.id) - min(own.id)
            FROM jobctl.job_schedules AS own
            WHERE own.owner = SESSION_USER AND own.definition_id = definition.id
        ) >= most - 1 THEN
            PERFORM
            FROM jobctl.job_schedules AS own
            WHERE own.owner = SESSION_USER AND own.definition_id = definition.id
            OFFSET most - 1;
            IF FOUND THEN
                refusal.code := '53400';
                refusal.reason := format(
                    'login `%s` has %s schedules of job `%s`; that is the limit',
                    SESSION_USER,
                    most,
                    job
                );
                EXIT;
            END IF;
        END IF;
        INSERT INTO jobctl.job_schedules (
            name, definition_id, schedule, time_zone, payload, share, starts_at, ends_at
        )
        VALUES (name, definition.id, schedule, time_zone, payload, share, starts, ends)
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN 'scheduled; the next tick computes the first time';
        END IF;
    END LOOP;
    IF refusal.code IS NULL THEN
        -- If no such row exists, no other session has stored it, so a trigger has skipped the row.
        PERFORM jobctl.require_written('job_schedules', chosen => 1, written => count(*))
        FROM jobctl.job_schedules AS own
        WHERE own.name = schedule.name;
    END IF;
    RAISE EXCEPTION USING
        ERRCODE = coalesce(refusal.code, '55P03'),
        MESSAGE = coalesce(refusal.reason, 'other sessions store this schedule; try again'),
        DETAIL = coalesce(job, '');
END
$$;
CREATE FUNCTION jobctl.schedule_error(expression text, time_zone text) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $_$
DECLARE
    aliases CONSTANT jsonb := '{
        "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *",
        "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *",
        "@annually": "0 0 1 1 *"
    }';
    names CONSTANT text[] := '{minute,hour,day-of-month,month,day-of-week}';
    lowest CONSTANT integer[] := '{0,0,1,1,0}';
    highest CONSTANT integer[] := '{59,23,31,12,7}';
    months CONSTANT text[] := '{jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec}';
    days CONSTANT text[] := '{sun,mon,tue,wed,thu,fri,sat}';
    allowed CONSTANT text[] := ARRAY[
        '0 to 59', '0 to 23', '1 to 31, L or LW', '1 to 12 or jan to dec',
        '0 to 7 or sun to sat, also with #1 to #5 or L'
    ];
    spaces CONSTANT text := E' \t\n\f\r';
    wanted text := btrim(schedule_error.expression, spaces);
    fields text[];
    words text[];
    item text;
    lower_item text;
    parts text[];
    low integer;
    high integer;
    step integer;
    seconds numeric;
    numbers integer[];
    -- What the last three fields match. special_days has `l` and `lw`, whose days depend on the
    -- month.
    of_month integer[];
    in_months integer[];
    special_days text[] := '{}';
    weekdays text[] := '{}';
    needs_both boolean;
BEGIN
    -- Raises the error of a wrong time zone.
    PERFORM jobctl.next_time('00:00', '*', schedule_error.time_zone);
    IF wanted IS NULL THEN
        RETURN 'schedule is NULL';
    ELSIF octet_length(wanted) > 1000 THEN
        RETURN 'schedule is longer than 1000 bytes';
    ELSIF wanted ~ '^@every ' THEN
        wanted := btrim(substr(wanted, 8), spaces);
        IF wanted ~ '^-[0-9]' THEN
            RETURN format('`%s` is negative; write 30s, 5m, 2h, 1d or 1h30m', wanted);
        ELSIF wanted !~ E'^([0-9]{1,12}([.][0-9]{1,9})?[ \t]*(ms|[smhdw])[ \t]*)+$' THEN
            RETURN format('`%s` is not a duration; write 30s, 5m, 2h, 1d or 1h30m', wanted);
        END IF;
        SELECT sum(
            part[1]::numeric * CASE part[2]
                WHEN 'ms' THEN 0.001
                WHEN 's' THEN 1
                WHEN 'm' THEN 60
                WHEN 'h' THEN 3600
                WHEN 'd' THEN 86400
                WHEN 'w' THEN 604800
            END
        )
        INTO seconds
        FROM regexp_matches(wanted, E'([0-9.]+)[ \t]*(ms|[smhdw])', 'g') AS part;
        RETURN CASE
            WHEN seconds NOT BETWEEN 60 AND 365 * 86400
                THEN format('`%s` is out of range; allowed are 1m to 365d', wanted)
            WHEN seconds % 60 <> 0
                THEN format('`%s` in `@every` is not a number of whole minutes', wanted)
        END;
    ELSIF wanted ~ '^@' AND NOT aliases ? wanted THEN
        RETURN format(
            '`%s` is not a schedule; write @hourly, @daily, @midnight, @weekly, @monthly, '
            '@yearly, @annually, @every 90m or five fields',
            wanted
        );
    END IF;
    fields := regexp_split_to_array(coalesce(aliases ->> wanted, wanted), '[' || spaces || ']+');
    IF cardinality(fields) <> 5 THEN
        RETURN format(
            '`%s` does not have five fields: minute, hour, day of month, month, day of week',
            wanted
        );
    END IF;
    FOR place IN 1..5 LOOP
        words := CASE place WHEN 4 THEN months WHEN 5 THEN days ELSE '{}' END;
        numbers := '{}';
        FOREACH item IN ARRAY string_to_array(fields[place], ',') LOOP
            lower_item := lower(item COLLATE "C");
            IF place = 3 AND lower_item IN ('l', 'lw') THEN
                special_days := special_days || lower_item;
                CONTINUE;
            END IF;
            -- The parts: 1 the star, 2 and 3 the ends of a range, 4 the step, 5 the suffix of a day
            -- of the week (#1 to #5, or l).
            parts := regexp_match(
                lower_item,
                replace(
                    '^(?:([*])|VALUE(?:-VALUE)?)(?:/0*([0-9]{1,9}))?(#[1-5]|l)?$',
                    'VALUE',
                    '(' || array_to_string(array_prepend('[0-9]+', words), '|') || ')'
                )
            );
            -- `low` and `high` are the first and the last number of the item. A number above 1,000
            -- becomes 1,000, which fits an integer, and is too large for every field.
            low := CASE
                WHEN parts[2] ~ '^[0-9]' THEN least(parts[2]::numeric, 1000)::integer
                WHEN parts[1] IS NULL
                    THEN array_position(words, parts[2]) + lowest[place] - 1
                ELSE lowest[place]
            END;
            high := CASE
                WHEN parts[3] ~ '^[0-9]' THEN least(parts[3]::numeric, 1000)::integer
                WHEN parts[3] IS NOT NULL
                    THEN array_position(words, parts[3]) + lowest[place] - 1
                WHEN parts[1] IS NULL THEN low
                WHEN place = 5 THEN 6
                ELSE highest[place]
            END;
            -- Sunday is 0, but as the end of a range it is 7: `sat-sun`.
            IF place = 5 AND high = 0 AND low > 0 THEN
                high := 7;
            END IF;
            step := least(coalesce(parts[4]::numeric, 1), 1000)::integer;
            -- IS NOT TRUE: if the item does not match the pattern, `low` is NULL. A suffix is only
            -- allowed after a single day of the week.
            IF (low >= lowest[place] AND greatest(low, high) <= highest[place]) IS NOT TRUE
                OR parts[5] IS NOT NULL
                AND (place < 5 OR num_nonnulls(parts[1], parts[3], parts[4]) > 0)
            THEN
                RETURN format(
                    '`%s` in the %s field is wrong; allowed are %s',
                    item,
                    names[place],
                    allowed[place]
                );
            ELSIF low > high THEN
                RETURN format('`%s` in the %s field runs backwards', item, names[place]);
            -- A step needs the star or a range.
            ELSIF step = 0 OR parts[4] IS NOT NULL AND num_nonnulls(parts[1], parts[3]) = 0 THEN
                RETURN format(
                    'the step of `%s` in the %s field is wrong; write a range and a number, as '
                    'in %s-%s/2',
                    item,
                    names[place],
                    low,
                    highest[place]
                );
            END IF;
            IF place = 5 THEN
                weekdays := weekdays || ARRAY(
                    SELECT days[value % 7 + 1] || coalesce(parts[5], '')
                    FROM generate_series(low, high, step) AS value
                );
            ELSE
                numbers := numbers || ARRAY(SELECT generate_series(low, high, step));
            END IF;
        END LOOP;
        of_month := CASE place WHEN 3 THEN numbers ELSE of_month END;
        in_months := CASE place WHEN 4 THEN numbers ELSE in_months END;
    END LOOP;
    -- As in cron: if the day of the month and the day of the week are both restricted, a day needs
    -- to match only one of them.
    needs_both := fields[3] ~ '^[*]' OR fields[5] ~ '^[*]';
    -- Read the days of 41 years, up to the first one that matches: within 40 years, every date
    -- falls on every day of the week.
    IF NOT EXISTS (
        SELECT
        FROM (
            SELECT current_date + generate_series(0, 41 * 366 - 1) + time '00:00' AS day
        ) AS candidate
        CROSS JOIN LATERAL (
            SELECT
                extract(day FROM candidate.day)::integer = ANY (of_month)
                    OR EXISTS (
                        SELECT FROM unnest(special_days) AS part
                        WHERE jobctl.is_on_day(candidate.day, part)
                    ) AS is_day,
                EXISTS (
                    SELECT FROM unnest(weekdays) AS part
                    WHERE jobctl.is_on_day(candidate.day, part)
                ) AS is_weekday
        ) AS found
        WHERE extract(month FROM candidate.day)::integer = ANY (in_months)
            AND CASE
                WHEN needs_both THEN found.is_day AND found.is_weekday
                ELSE found.is_day OR found.is_weekday
            END
    ) THEN
        RETURN format('`%s` never fires', wanted);
    END IF;
    RETURN NULL;
END
$_$;
CREATE FUNCTION jobctl.serving(job text, queue text, tick_age double precision, OUT served boolean, OUT accepted boolean, OUT served_by_held boolean, OUT accepted_by_held boolean) RETURNS record
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT
        coalesce(bool_or(judged.ticks), false),
        coalesce(bool_or(judged.ticks AND judged.accepts), false),
        coalesce(bool_or(seen.is_held), false),
        coalesce(bool_or(seen.is_held AND judged.accepts), false)
    FROM jobctl.job_workers AS worker
    JOIN jobctl.seen_workers AS seen ON seen.worker = worker.worker
    LEFT JOIN jobctl.job_definitions AS definition ON definition.name = serving.job
    CROSS JOIN LATERAL (
        SELECT
            seen.seen_at > now() - make_interval(secs => serving.tick_age) AND NOT seen.is_held
                AS ticks,
            serving.job <> ALL (worker.excluded_jobs)
                AND coalesce(definition.kind <> ALL (worker.excluded_kinds), true) AS accepts
    ) AS judged
    WHERE worker.queues = '{}'
        OR serving.queue = ANY (worker.queues)
$$;
CREATE FUNCTION jobctl.set_aside_unclaimable(worker text, runs bigint[], put_off_for interval, slow text) RETURNS TABLE(id bigint, is_dead boolean, code text, message text, second_code text, second_message text)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    AS $$
BEGIN
    -- A deferred constraint then rejects a claim here, and not at the commit.
    SET CONSTRAINTS ALL IMMEDIATE;
    FOREACH id IN ARRAY runs LOOP
        is_dead := false;
        second_code := NULL;
        second_message := NULL;
        IF slow IS NULL THEN
            BEGIN
                -- Reads the texts that a claim reads. Only if this fails, is_dead stays true.
                is_dead := true;
                PERFORM octet_length(run.payload::text), octet_length(definition.action::text)
                FROM jobctl.job_runs AS run
                LEFT JOIN jobctl.job_definitions AS definition
                    ON definition.name = run.job_type
                WHERE run.id = set_aside_unclaimable.id;
                is_dead := false;
                -- Claims the run, unless another session has locked it.
                PERFORM
                FROM jobctl.job_runs AS run
                WHERE run.id = set_aside_unclaimable.id
                    AND run.status IN ('queued', 'failed')
                FOR NO KEY UPDATE SKIP LOCKED;
                IF FOUND THEN
                    UPDATE jobctl.job_runs AS run
                    SET
                        status = 'running',
                        attempts = run.attempts + 1,
                        locked_by = set_aside_unclaimable.worker,
                        locked_until = now() + interval '1 minute',
                        started_at = now(),
                        updated_at = now()
                    WHERE run.id = set_aside_unclaimable.id;
                    PERFORM jobctl.require_written(
                        'job_runs', chosen => 1, written => FOUND::integer
                    );
                END IF;
                -- The run can be claimed, or is locked. This error undoes the claim.
                RAISE EXCEPTION USING ERRCODE = 'JC000';
            EXCEPTION
                WHEN SQLSTATE 'JC000' THEN
                    -- The run needs nothing, so it gets no row.
                    CONTINUE;
                WHEN OTHERS THEN
                    code := SQLSTATE;
                    message := SQLERRM;
            END;
        ELSE
            -- query_canceled: the claim took longer than a statement may.
            code := '57014';
            message := slow;
        END IF;
        BEGIN
            IF is_dead THEN
                -- Does not read the payload, so it does not fail as the claim did.
                PERFORM jobctl.end_runs(
                    'unreadable',
                    ARRAY[id],
                    errors => ARRAY['cannot read runs: ' || message]
                );
            ELSE
                UPDATE jobctl.job_runs AS run
                SET
                    run_at = now() + put_off_for,
                    last_error = 'cannot claim runs: ' || message,
                    error_type = 'claim_rejected',
                    updated_at = now()
                WHERE run.id = set_aside_unclaimable.id
                    AND run.status IN ('queued', 'failed')
                    AND run.run_at <= now();
            END IF;
            IF EXISTS (
                SELECT FROM jobctl.job_runs AS run
                WHERE run.id = set_aside_unclaimable.id
                    AND run.status IN ('queued', 'failed')
                    AND run.run_at <= now()
            ) THEN
                -- The run is still due, so a trigger has skipped the row.
                PERFORM jobctl.require_written('job_runs', chosen => 1, written => 0);
            END IF;
        EXCEPTION WHEN OTHERS THEN
            second_code := SQLSTATE;
            second_message := SQLERRM;
        END;
        RETURN NEXT;
    END LOOP;
END
$$;
CREATE FUNCTION jobctl.stuck_predecessor(runs bigint[]) RETURNS TABLE(run_id bigint, id bigint, status text)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    AS $$
    -- `run_id` is one of `runs`, and `id` a run for which it waits, directly or through others. The
    -- chain begins with the run itself.
    WITH RECURSIVE chain (run_id, id, status, is_stuck) AS (
        SELECT asked.id, asked.id, 'blocked', false
        FROM unnest(runs) AS asked (id)
        -- Without a row in one of these states, no run is stuck, and the search is left out.
        WHERE EXISTS (
            SELECT FROM jobctl.job_dependencies AS dependency
            WHERE dependency.state IN ('stuck', 'due')
        )
        UNION
        SELECT chain.run_id, predecessor.id, predecessor.status, predecessor.is_stuck
        FROM chain
        -- OFFSET 0 makes the planner read one run at a time, by the indexes.
        CROSS JOIN LATERAL (
            SELECT awaited.id, awaited.status, awaited.is_stuck
            FROM jobctl.awaited_runs AS awaited
            WHERE awaited.follower_id = chain.id
                AND awaited.state <> 'met'
            OFFSET 0
        ) AS predecessor
        WHERE chain.status = 'blocked'
    )
    SELECT DISTINCT ON (known.run_id) known.run_id, known.id, known.status
    FROM (
        SELECT chain.*
        FROM chain
        -- The runs themselves do not count.
        LIMIT 10000 + cardinality(runs)
    ) AS known
    WHERE known.is_stuck
    ORDER BY known.run_id, known.id
$$;
CREATE FUNCTION jobctl.succeeded_attempt(run bigint) RETURNS integer
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT max(attempt.attempt)
    FROM jobctl.job_attempts AS attempt
    WHERE attempt.run_id = succeeded_attempt.run
        AND attempt.outcome = 'succeeded'
$$;
CREATE FUNCTION jobctl.try_enqueue(job text, payload jsonb, key text, run_at timestamp with time zone, run_in interval, priority integer, queue text, max_attempts integer, timeout interval, backoff text, key_scope text, on_conflict text DEFAULT NULL::text, debounce interval DEFAULT NULL::interval, debounce_max interval DEFAULT NULL::interval, expires_in interval DEFAULT NULL::interval, share text DEFAULT NULL::text, lock text DEFAULT NULL::text, worker text DEFAULT NULL::text, traceparent text DEFAULT NULL::text, caller jobctl.caller DEFAULT CURRENT_USER, OUT id bigint, OUT result text, OUT code text, OUT reason text, OUT status text, OUT due_at timestamp with time zone) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    SET lock_timeout TO '2s'
    AS $$
#variable_conflict use_column
DECLARE
    definition jobctl.job_definitions;
    expires_at timestamptz;
    replaces boolean :=
        coalesce(try_enqueue.on_conflict = 'replace', try_enqueue.debounce IS NOT NULL);
    is_full boolean := false;
    payload_bytes integer;
    is_backoff boolean;
    refusal record;
BEGIN
    SELECT * INTO definition FROM jobctl.job_definitions WHERE name = try_enqueue.job;
    payload := coalesce(try_enqueue.payload, '{}');
    -- In seconds: a comparison of intervals counts 360 days a year, but the seconds of a timeout
    -- 365.25. So an interval with years and negative days could pass the check as short, and last
    -- long.
    timeout := extract(epoch FROM try_enqueue.timeout) * interval '1 second';
    refusal := jobctl.enqueue_refusal(
        job,
        definition,
        jobctl.exceeded_limit(definition, queue, priority, max_attempts, timeout, backoff),
        key,
        caller
    );
    code := refusal.code;
    reason := refusal.reason;
    IF code IS NOT NULL THEN
        RETURN;
    END IF;
    -- A statement of its own: an expression that contains this call is slow, even if it does not
    -- reach the call.
    IF backoff <> definition.backoff THEN
        is_backoff := jobctl.is_backoff(backoff);
    END IF;
    payload_bytes := octet_length(payload::text);
    reason := jobctl.wrong_value(
        definition, payload, payload_bytes, key, run_at, run_in, queue, max_attempts, timeout,
        backoff, is_backoff, key_scope, on_conflict, debounce, debounce_max, expires_in, share,
        lock, worker, traceparent, caller
    );
    IF reason IS NOT NULL THEN
        code := '22023';
        RETURN;
    END IF;
    -- In seconds, because the length of a month or a day depends on the time that it is added to.
    run_in := extract(epoch FROM try_enqueue.run_in) * interval '1 second';
    debounce := extract(epoch FROM try_enqueue.debounce) * interval '1 second';
    debounce_max := extract(epoch FROM try_enqueue.debounce_max) * interval '1 second';
    expires_in := extract(epoch FROM coalesce(try_enqueue.expires_in, definition.expires))
        * interval '1 second';
    run_at := coalesce(run_at, now() + coalesce(run_in, debounce), now());
    expires_at := run_at + expires_in;
    -- Not in the past: claims begin with the earliest run_at, so the new run would start before
    -- runs that are due already.
    run_at := greatest(run_at, now());
    IF definition.max_waiting IS NOT NULL AND definition.when_full <> 'drop_oldest' THEN
        -- Count the waiting runs, in at most max_waiting entries of indexes. With a stored number,
        -- all enqueues and claims of the job would write the same row, and wait for each other.
        -- OFFSET skips all of these runs but the last: one is found if max_waiting runs wait.
        PERFORM
        FROM jobctl.waiting_runs(definition.name, definition.max_waiting)
        OFFSET definition.max_waiting - 1;
        is_full := FOUND;
    END IF;
    -- Tries again if the run with the key was deleted or ended between the two statements, or if
    -- another program inserted a row with this id. If all five ids are taken, the sequence is
    -- behind its table.
    FOR try IN 1..5 LOOP
        IF replaces THEN
            -- If the definition is full, no new run can take the key of a running run.
            id := jobctl.replace_waiting(
                definition.name, key, payload, run_at, debounce_max, expires_at, share, lock,
                worker, traceparent, takes_key => NOT is_full
            );
            IF id IS NOT NULL THEN
                result := 'replaced';
                RETURN;
            END IF;
        END IF;
        INSERT INTO jobctl.job_runs AS run (
            definition_id,
            job_type,
            payload,
            queue,
            priority,
            run_at,
            max_attempts,
            timeout,
            backoff,
            idempotency_key,
            key_scope,
            expires_at,
            share,
            lock,
            worker,
            traceparent,
            enqueued_by
        )
        SELECT
            definition.id,
            definition.name,
            try_enqueue.payload,
            coalesce(try_enqueue.queue, definition.queue),
            coalesce(try_enqueue.priority, definition.priority),
            try_enqueue.run_at,
            coalesce(try_enqueue.max_attempts, definition.max_attempts),
            try_enqueue.timeout,
            coalesce(try_enqueue.backoff, definition.backoff),
            try_enqueue.key,
            coalesce(try_enqueue.key_scope, 'retained'),
            expires_at,
            try_enqueue.share,
            try_enqueue.lock,
            try_enqueue.worker,
            try_enqueue.traceparent,
            -- A run of a hook belongs to the schema's owner. An enqueuer can end a run, to make
            -- room for its own. It must not read the output of that run's hook, or let the hook
            -- wait.
            CASE WHEN try_enqueue.key ~ '^jobctl-hook-' THEN CURRENT_USER ELSE SESSION_USER END
        WHERE NOT is_full
        ON CONFLICT DO NOTHING
        RETURNING run.id INTO try_enqueue.id;
        IF FOUND THEN
            result := 'enqueued';
            IF definition.when_full = 'drop_oldest' AND definition.max_waiting IS NOT NULL THEN
                PERFORM jobctl.drop_oldest(definition.name, definition.max_waiting);
            END IF;
            RETURN;
        END IF;
        SELECT answer.*
        INTO id, result, code, reason, status, due_at
        FROM jobctl.key_conflict(
            definition.name,
            payload,
            key,
            coalesce(key_scope, 'retained'),
            CASE WHEN replaces THEN 'replace' ELSE on_conflict END,
            run_at
        ) AS answer;
        IF FOUND THEN
            RETURN;
        END IF;
        IF is_full AND definition.when_full = 'drop_new' THEN
            result := 'dropped';
            -- `dropped` is not a status, so last_ended_at and last_status stay as they are: no run
            -- ended.
            PERFORM jobctl.count_attempts(
                runs => ARRAY[NULL]::bigint[],
                job_types => ARRAY[definition.name],
                statuses => '{dropped}',
                outcomes => '{dropped}',
                run_times => ARRAY[NULL]::float8[],
                wait_times => ARRAY[NULL]::float8[]
            );
            RETURN;
        ELSIF is_full THEN
            code := 'JC008';
            reason := format(
                'definition `%s` is full, its max_waiting is %s; try again later',
                try_enqueue.job,
                definition.max_waiting
            );
            RETURN;
        END IF;
    END LOOP;
    -- If another run has the last id, the sequence is behind its table. Otherwise a trigger skipped
    -- the row.
    PERFORM jobctl.require_written('job_runs', chosen => 1, written => count(*))
    FROM jobctl.job_runs AS run
    WHERE run.id = currval('jobctl.job_runs_id_seq');
    code := 'JC007';
    reason := 'the sequence of jobctl.job_runs is behind its table; `jobctl doctor` prints the '
        'statement that corrects it';
END
$$;
CREATE FUNCTION jobctl.unschedule(name text, caller jobctl.caller DEFAULT CURRENT_USER) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    SET lock_timeout TO '2s'
    AS $$
DECLARE
    stored jobctl.job_schedules := jobctl.lock_schedule(unschedule.name, caller);
BEGIN
    IF stored.id IS NULL THEN
        RETURN false;
    END IF;
    DELETE FROM jobctl.job_schedules AS deleted WHERE deleted.id = stored.id;
    RETURN jobctl.require_written('job_schedules', chosen => 1, written => FOUND::integer);
END
$$;
CREATE FUNCTION jobctl.usual_run_time(job text, OUT successes bigint, OUT median_seconds double precision, OUT p95_seconds double precision, OUT newest_run bigint, OUT newest_seconds double precision) RETURNS record
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
    WITH success AS (
        SELECT DISTINCT newest.id, newest.attempts
        FROM (
            -- The first scan reads the runs before this id, which is the largest bigint.
            SELECT 9223372036854775807
            UNION ALL
            -- + 0 keeps the planner from reading all runs by id.
            SELECT max(run.id + 0)
            FROM jobctl.job_runs AS run
            WHERE run.status = 'running'
                AND run.job_type = usual_run_time.job
        ) AS scan (before)
        CROSS JOIN LATERAL (
            SELECT run.id, run.attempts
            FROM (
                SELECT run.job_type, run.id, run.attempts, run.status
                FROM jobctl.job_runs AS run
                -- BETWEEN keeps the planner from reading the runs of all jobs by id, as it may with
                -- `=`.
                WHERE run.job_type BETWEEN usual_run_time.job AND usual_run_time.job
                    AND run.status <> 'running'
                    AND run.id < scan.before
                ORDER BY run.job_type DESC, run.id DESC
                LIMIT 1000
            ) AS run
            WHERE run.status = 'succeeded'
            ORDER BY run.job_type DESC, run.id DESC
            LIMIT 30
        ) AS newest
        ORDER BY newest.id DESC
        LIMIT 30
    )
    SELECT
        count(*),
        percentile_disc(0.5) WITHIN GROUP (ORDER BY timed.took),
        percentile_disc(0.95) WITHIN GROUP (ORDER BY timed.took),
        max(success.id),
        (array_agg(timed.took ORDER BY success.id DESC))[1]
    FROM success
    -- OFFSET 0 makes the planner read these attempts by their runs, instead of all attempts.
    CROSS JOIN LATERAL (
        SELECT
            extract(
                epoch FROM greatest(attempt.finished_at, attempt.started_at) - attempt.started_at
            )::float8 AS took
        FROM jobctl.job_attempts AS attempt
        WHERE attempt.run_id = success.id
            AND attempt.attempt = success.attempts
        OFFSET 0
    ) AS timed
$$;
CREATE FUNCTION jobctl.visible_runs(runs bigint[], caller name, or_all boolean) RETURNS TABLE(id bigint)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    AS $$
    SELECT run.id
    FROM jobctl.job_runs AS run
    WHERE run.id = ANY (runs)
        AND (
            or_all
            OR run.enqueued_by = SESSION_USER
            OR pg_has_role(caller, to_regrole(quote_ident(run.enqueued_by)), 'USAGE')
        )
$$;
CREATE FUNCTION jobctl.wait_for(runs bigint[], predecessors bigint[], rules text[], caller jobctl.caller DEFAULT CURRENT_USER, OUT run_id bigint, OUT code text, OUT reason text) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
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
CREATE FUNCTION jobctl.waiting_runs(job text, most integer) RETURNS SETOF bigint
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    AS $$
BEGIN
    RETURN QUERY
    (
        SELECT run.id
        FROM jobctl.job_runs AS run
        -- The conditions and the order of the index job_runs_waiting_of_job, so that the planner
        -- uses this index.
        WHERE run.job_type = job
            AND run.job_type NOT IN ('shell', 'http')
            AND run.status IN ('queued', 'failed')
        ORDER BY
            run.job_type,
            coalesce(run.share, ''),
            run.queue,
            run.priority,
            run.run_at,
            run.id
        LIMIT most
    )
    UNION ALL
    (
        SELECT run.id
        FROM jobctl.job_runs AS run
        WHERE run.job_type = job
            AND run.status = 'blocked'
        LIMIT most
    )
    LIMIT most;
END
$$;
CREATE FUNCTION jobctl.within_locks(INOUT runs bigint[], OUT skipped_job text) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
DECLARE
    -- The lock of each run; empty: the run has none.
    locks text[];
    -- The slots that this call has locked.
    slots integer[];
    skipped bigint;
BEGIN
    locks := ARRAY(
        SELECT coalesce(definition.lock_name, run.lock, '')
        FROM unnest(runs) WITH ORDINALITY AS chosen (id, place)
        JOIN jobctl.job_runs AS run ON run.id = chosen.id
        LEFT JOIN jobctl.job_definitions AS definition ON definition.name = run.job_type
        ORDER BY chosen.place
    );
    IF NOT EXISTS (SELECT FROM unnest(locks) AS lock WHERE lock <> '') THEN
        RETURN;
    END IF;
    slots := ARRAY(
        SELECT slot.slot
        FROM jobctl.job_lock_slots AS slot
        WHERE slot.slot = ANY (ARRAY(SELECT jobctl.lock_slot(lock) FROM unnest(locks) AS lock))
        ORDER BY slot.slot
        FOR NO KEY UPDATE SKIP LOCKED
    );
    WITH chosen AS (
        SELECT
            given.id,
            given.place,
            given.lock,
            jobctl.lock_slot(given.lock) = ANY (slots) AS is_free,
            -- The place of the run among those with the same lock.
            row_number() OVER (PARTITION BY given.lock ORDER BY given.place) AS turn
        FROM unnest(runs, locks) WITH ORDINALITY AS given (id, lock, place)
    )
    SELECT
        coalesce(
            array_agg(chosen.id ORDER BY chosen.place) FILTER (
                WHERE chosen.lock = ''
                    OR chosen.is_free
                    AND chosen.turn + coalesce(running.runs, 0)
                        <= jobctl.most_with_lock(chosen.lock)
            ),
            '{}'
        ),
        min(chosen.id) FILTER (WHERE NOT chosen.is_free AND chosen.lock <> '')
    INTO runs, skipped
    FROM chosen
    LEFT JOIN jobctl.running_locks AS running ON running.lock = chosen.lock;
    skipped_job := (SELECT run.job_type FROM jobctl.job_runs AS run WHERE run.id = skipped);
END
$$;
CREATE FUNCTION jobctl.wrong_value(definition jobctl.job_definitions, payload jsonb, payload_bytes integer, key text, run_at timestamp with time zone, run_in interval, queue text, max_attempts integer, timeout interval, backoff text, is_backoff boolean, key_scope text, on_conflict text, debounce interval, debounce_max interval, expires_in interval, share text, lock text, worker text, traceparent text, caller name) RETURNS text
    LANGUAGE sql STABLE
    AS $_$
    SELECT CASE
        WHEN run_at IS NOT NULL AND run_in IS NOT NULL
            THEN 'run_at and run_in exclude each other'
        WHEN run_at < '0001-01-01 00:00Z' OR run_at >= '10000-01-01 00:00Z'
            THEN 'run_at is out of range; allowed are the years 1 to 9999'
        WHEN extract(epoch FROM run_in) NOT BETWEEN 0 AND 3650 * 86400
            THEN 'run_in is out of range; allowed are 0 to 3650 days'
        WHEN timeout NOT BETWEEN '1 second' AND '30 days'
            THEN 'timeout is out of range; allowed are 1 second to 30 days'
        WHEN max_attempts NOT BETWEEN 1 AND 1000
            THEN 'max_attempts is out of range; allowed are 1 to 1000'
        WHEN queue IS DISTINCT FROM definition.queue
            AND queue !~ '^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,62}$'
            THEN 'queue must be 1 to 63 letters, digits or _ . : -'
        WHEN length(backoff) > 1000
            THEN 'backoff is longer than 1000 characters'
        -- The list of control or invisible characters is that of src/text/plain.rs.
        WHEN octet_length(key) NOT BETWEEN 1 AND 255
            OR key ~ (E'^(-|jobctl-run-| +$)|['
                '\\u0001-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5'
                '\\u180b-\\u180f\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164'
                '\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb\\U0001bca0-\\U0001bca3'
                '\\U0001d173-\\U0001d17a\\U000e0000-\\U000e0fff]')
            -- Only enqueue_hooks uses this prefix, and it calls as the schema's owner.
            OR (
                key ~ '^jobctl-hook-'
                AND pg_has_role(caller, CURRENT_USER, 'USAGE') IS NOT TRUE
            )
            THEN 'key must be 1 to 255 bytes, not all blanks, without control or invisible '
                'characters, and must not begin with -, jobctl-run- or jobctl-hook-'
        WHEN key_scope NOT IN ('retained', 'live')
            THEN 'key_scope must be retained or live'
        WHEN key_scope = 'live' AND key IS NULL
            THEN 'key_scope needs a key'
        WHEN on_conflict NOT IN ('same', 'replace', 'error')
            THEN 'on_conflict must be same, replace or error'
        WHEN on_conflict <> 'same' AND key IS NULL
            THEN 'on_conflict needs a key'
        WHEN debounce IS NOT NULL AND on_conflict <> 'replace'
            THEN 'debounce replaces the waiting run, so on_conflict must be replace'
        WHEN (on_conflict = 'replace' OR debounce IS NOT NULL)
            AND (key IS NULL OR key_scope IS DISTINCT FROM 'live')
            THEN 'replace and debounce need a key with the key_scope live'
        WHEN debounce IS NOT NULL AND num_nonnulls(run_at, run_in) > 0
            THEN 'debounce excludes run_at and run_in'
        WHEN extract(epoch FROM debounce) NOT BETWEEN 0 AND 3650 * 86400
            THEN 'debounce is out of range; allowed are 0 to 3650 days'
        WHEN debounce_max IS NOT NULL AND debounce IS NULL
            THEN 'debounce_max needs debounce'
        WHEN extract(epoch FROM debounce_max)
            NOT BETWEEN extract(epoch FROM debounce) AND 3650 * 86400
            THEN 'debounce_max is out of range; allowed are the debounce to 3650 days'
        WHEN extract(epoch FROM expires_in) NOT BETWEEN 1 AND 3650 * 86400
            THEN 'expires_in is out of range; allowed are 1 second to 3650 days'
        WHEN least(octet_length(share), octet_length(lock), octet_length(worker)) < 1
            OR greatest(octet_length(share), octet_length(lock), octet_length(worker)) > 255
            OR share ~ '^(-| +$)'
            OR lock ~ '^(-| +$)'
            OR worker ~ '^(-| +$)'
            OR concat_ws('', share, lock, worker) ~ (E'['
                '\\u0001-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5'
                '\\u180b-\\u180f\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164'
                '\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb\\U0001bca0-\\U0001bca3'
                '\\U0001d173-\\U0001d17a\\U000e0000-\\U000e0fff]')
            THEN concat_ws(
                ', ',
                CASE WHEN share IS NOT NULL THEN 'share' END,
                CASE WHEN lock IS NOT NULL THEN 'lock' END,
                CASE WHEN worker IS NOT NULL THEN 'worker' END
            ) || ' must be 1 to 255 bytes, not all blanks, without control or invisible '
                'characters, and must not begin with -'
        WHEN lock IS NOT NULL AND definition.lock_name IS NOT NULL
            THEN format('the definition has the lock %s; leave lock out', definition.lock_name)
        -- Accept every version but ff: versions differ only after these parts.
        WHEN traceparent !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'
            OR traceparent ~ '^ff|-0{32}-|-0{16}-'
            THEN 'traceparent must be as in 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'
        -- Limit the text and the stored size: a number with a large exponent is short in jsonb, but
        -- long as text, which a claim reads. 262144 bytes are 256 KiB, the longest payload that
        -- `jobctl enqueue` accepts (PAYLOAD_LIMIT in src/job/payload.rs).
        -- For rows that a program inserts directly, only the constraints of the table apply.
        WHEN payload_bytes > 4 * 262144
            THEN 'payload is longer than 1 MiB'
        WHEN pg_column_size(payload) > 8 * 262144
            THEN 'payload takes more than 2 MiB'
        -- PostgreSQL accepts these values, but other JSON readers do not. Each takes more than 100
        -- characters, so shorter payloads need no search.
        WHEN payload_bytes > 100
            AND payload @? 'strict $.**{64 to last} ? (@.type() == "array" || @.type() == "object")'
            THEN 'payload is nested deeper than 64'
        WHEN payload_bytes > 100 AND payload @? 'strict $.** ? (@ >= 1.8e308 || @ <= -1.8e308)'
            THEN 'payload has a number out of range'
        WHEN NOT is_backoff
            THEN 'backoff must be like fixed:1m, exponential:1m..30m, polynomial:10s '
                'or list:1m,5m,30m, up to 30d'
        WHEN coalesce(
            run_at,
            now() + extract(epoch FROM coalesce(run_in, debounce)) * interval '1 second',
            now()
        ) + extract(epoch FROM coalesce(expires_in, definition.expires)) * interval '1 second'
            >= '10000-01-01 00:00Z'
            THEN 'expires_in is out of range; the run would expire after the year 9999'
    END
$_$;
CREATE TABLE jobctl.job_dependencies (
    run_id bigint NOT NULL,
    after_id bigint NOT NULL,
    rule text DEFAULT 'success'::text NOT NULL,
    state text DEFAULT 'open'::text NOT NULL,
    attempt integer,
    CONSTRAINT no_run_waits_for_itself CHECK ((run_id <> after_id)),
    CONSTRAINT rule_is_known CHECK ((rule = ANY (ARRAY['success'::text, 'any_end'::text, 'or_cancel'::text]))),
    CONSTRAINT state_is_known CHECK ((state = ANY (ARRAY['open'::text, 'stuck'::text, 'due'::text, 'met'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.05');
CREATE TABLE jobctl.job_runs (
    id bigint NOT NULL,
    definition_id bigint,
    job_type text NOT NULL,
    payload jsonb DEFAULT '{}'::jsonb NOT NULL,
    payload_bytes integer GENERATED ALWAYS AS (octet_length((payload)::text)) STORED,
    queue text DEFAULT 'default'::text NOT NULL,
    priority integer DEFAULT 0 NOT NULL,
    run_at timestamp with time zone DEFAULT now() NOT NULL,
    status text DEFAULT 'queued'::text NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    max_attempts integer DEFAULT 10 NOT NULL,
    uncounted_attempts integer DEFAULT 0 NOT NULL,
    snoozed_attempts integer DEFAULT 0 NOT NULL,
    granted_attempts integer,
    timeout interval,
    backoff text DEFAULT 'exponential:1m..30m'::text NOT NULL,
    idempotency_key text,
    key_scope text DEFAULT 'retained'::text NOT NULL,
    scheduled_for timestamp with time zone,
    schedule text COLLATE pg_catalog."C",
    expires_at timestamp with time zone,
    share text COLLATE pg_catalog."C",
    worker text,
    lock text,
    traceparent text,
    locked_by text,
    locked_until timestamp with time zone,
    cancel_requested_at timestamp with time zone,
    live_output text,
    last_error text,
    error_type text,
    failed_at timestamp with time zone,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    settled_at timestamp with time zone,
    enqueued_by text DEFAULT SESSION_USER NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT backoff_is_known CHECK (((backoff = 'exponential:1m..30m'::text) OR (backoff ~ '^(fixed|exponential|polynomial|list):[0-9a-z., ]+$'::text))),
    CONSTRAINT job_type_is_short CHECK (((length(job_type) >= 1) AND (length(job_type) <= 63))),
    CONSTRAINT key_is_1_to_255_bytes CHECK (((octet_length(idempotency_key) >= 1) AND (octet_length(idempotency_key) <= 255))),
    CONSTRAINT key_is_plain_and_not_reserved CHECK ((idempotency_key !~ '^(-|jobctl-run-)|[\u0001-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]'::text)),
    CONSTRAINT key_scope_is_known CHECK ((key_scope = ANY (ARRAY['retained'::text, 'live'::text, 'replaced'::text]))),
    CONSTRAINT lock_is_1_to_255_bytes CHECK (((octet_length(lock) >= 1) AND (octet_length(lock) <= 255))),
    CONSTRAINT lock_is_plain CHECK ((lock !~ '^-|[\u0001-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]'::text)),
    CONSTRAINT max_attempts_in_range CHECK (((max_attempts >= 1) AND (max_attempts <= 1000000))),
    CONSTRAINT only_dead_is_settled CHECK (((status = 'dead'::text) OR (settled_at IS NULL))),
    CONSTRAINT only_final_has_finished_at CHECK (((status = ANY (ARRAY['succeeded'::text, 'dead'::text, 'cancelled'::text])) = (finished_at IS NOT NULL))),
    CONSTRAINT only_running_has_a_lease CHECK ((((status = 'running'::text) = (locked_by IS NOT NULL)) AND ((status = 'running'::text) = (locked_until IS NOT NULL)))),
    CONSTRAINT payload_is_bounded CHECK (((pg_column_size(payload) <= (8 * 262144)) AND (payload_bytes <= (64 * 262144)))),
    CONSTRAINT queue_is_short_and_plain CHECK (((queue = 'default'::text) OR (queue ~ '^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,62}$'::text))),
    CONSTRAINT run_at_is_a_date CHECK (((run_at >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (run_at < '10000-01-01 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT schedule_is_1_to_255_bytes CHECK (((octet_length(schedule) >= 1) AND (octet_length(schedule) <= 255))),
    CONSTRAINT share_is_1_to_255_bytes CHECK (((octet_length(share) >= 1) AND (octet_length(share) <= 255))),
    CONSTRAINT share_is_plain CHECK ((share !~ '^-|[\u0001-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]'::text)),
    CONSTRAINT snoozed_attempts_in_range CHECK (((snoozed_attempts >= 0) AND (snoozed_attempts <= 100))),
    CONSTRAINT starts_are_bounded CHECK (((attempts >= 0) AND (attempts <= (max_attempts + uncounted_attempts)))),
    CONSTRAINT status_is_known CHECK ((status = ANY (ARRAY['blocked'::text, 'queued'::text, 'running'::text, 'succeeded'::text, 'failed'::text, 'dead'::text, 'cancelled'::text]))),
    CONSTRAINT texts_are_bounded CHECK (((octet_length(locked_by) <= 255) AND (octet_length(error_type) <= 100) AND (GREATEST(octet_length(last_error), octet_length(live_output)) <= (4 * 262144)))),
    CONSTRAINT timeout_is_positive CHECK ((timeout > '00:00:00'::interval)),
    CONSTRAINT times_are_dates CHECK (((LEAST(locked_until, scheduled_for, expires_at, cancel_requested_at, failed_at, started_at, finished_at, settled_at, created_at, updated_at) >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (GREATEST(locked_until, scheduled_for, expires_at, cancel_requested_at, failed_at, started_at, finished_at, settled_at, created_at, updated_at) < '10000-01-01 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT traceparent_is_known CHECK ((traceparent ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'::text)),
    CONSTRAINT uncounted_attempts_in_range CHECK (((uncounted_attempts >= snoozed_attempts) AND (uncounted_attempts <= (snoozed_attempts + 100)))),
    CONSTRAINT waiting_has_an_attempt_left CHECK (((status <> ALL (ARRAY['queued'::text, 'failed'::text])) OR (attempts < (max_attempts + uncounted_attempts)))),
    CONSTRAINT worker_is_1_to_255_bytes CHECK (((octet_length(worker) >= 1) AND (octet_length(worker) <= 255)))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='500', autovacuum_analyze_scale_factor='0.02', autovacuum_vacuum_cost_delay='0');
CREATE VIEW jobctl.awaited_runs AS
 SELECT dependency.after_id AS id,
    dependency.state,
    follower.id AS follower_id,
    follower.job_type AS follower_job,
    COALESCE(predecessor.status, 'deleted'::text) AS status,
    (((dependency.state = 'stuck'::text) OR ((dependency.state = 'due'::text) AND (dependency.rule = 'success'::text))) AND (follower.status = 'blocked'::text) AND (COALESCE(predecessor.status, 'deleted'::text) = ANY (ARRAY['dead'::text, 'cancelled'::text, 'deleted'::text]))) AS is_stuck
   FROM ((jobctl.job_dependencies dependency
     JOIN jobctl.job_runs follower ON (((follower.id = dependency.run_id) AND (follower.finished_at IS NULL))))
     LEFT JOIN jobctl.job_runs predecessor ON ((predecessor.id = dependency.after_id)));
CREATE TABLE jobctl.job_holds (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    scope text NOT NULL,
    name text DEFAULT ''::text NOT NULL,
    held_at timestamp with time zone DEFAULT now() NOT NULL,
    held_until timestamp with time zone,
    recorded_by text DEFAULT concat_ws(' as '::text, SESSION_USER, NULLIF(CURRENT_USER, SESSION_USER)) NOT NULL,
    host_user text,
    reason text,
    run_id bigint,
    CONSTRAINT all_has_no_name CHECK (((scope = 'all'::text) = (name = ''::text))),
    CONSTRAINT name_is_short CHECK ((length(name) <= 255)),
    CONSTRAINT scope_is_known CHECK ((scope = ANY (ARRAY['job'::text, 'queue'::text, 'worker'::text, 'all'::text]))),
    CONSTRAINT texts_are_short CHECK ((GREATEST(length(host_user), length(reason)) <= 1000)),
    CONSTRAINT times_are_dates CHECK (((LEAST(held_at, held_until) >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (GREATEST(held_at, held_until) < '10000-01-01 00:00:00+00'::timestamp with time zone)))
);
CREATE VIEW jobctl.current_holds AS
 SELECT hold.id,
    hold.scope,
    hold.name,
    hold.held_at,
    hold.held_until,
    hold.recorded_by,
    hold.host_user,
    hold.reason,
    hold.run_id
   FROM (jobctl.job_holds hold
     LEFT JOIN LATERAL ( SELECT run.run_at
           FROM jobctl.job_runs run
          WHERE ((run.id = hold.run_id) AND (run.status = 'queued'::text))
         OFFSET 0) asked ON (true))
  WHERE (COALESCE((hold.held_until > now()), true) AND ((hold.run_id IS NULL) OR ((asked.run_at = hold.held_until) AND (hold.held_at <= (now() + '00:01:00'::interval)))));
CREATE TABLE jobctl.job_figures (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    job_type text NOT NULL,
    day date DEFAULT ((now() AT TIME ZONE 'UTC'::text))::date NOT NULL,
    part integer DEFAULT 1 NOT NULL,
    writes integer DEFAULT 0 NOT NULL,
    succeeded bigint DEFAULT 0 NOT NULL,
    dead bigint DEFAULT 0 NOT NULL,
    expired bigint DEFAULT 0 NOT NULL,
    dropped bigint DEFAULT 0 NOT NULL,
    failed_attempts bigint DEFAULT 0 NOT NULL,
    retried_attempts bigint DEFAULT 0 NOT NULL,
    run_time_seconds double precision DEFAULT 0 NOT NULL,
    wait_seconds double precision DEFAULT 0 NOT NULL,
    waits bigint[] DEFAULT '{0,0,0,0,0,0,0}'::bigint[] NOT NULL,
    last_ended_at timestamp with time zone,
    last_status text,
    last_succeeded_at timestamp with time zone,
    failures_in_row bigint DEFAULT 0 NOT NULL,
    failing_since timestamp with time zone,
    failing_run bigint,
    CONSTRAINT job_type_is_short CHECK (((length(job_type) >= 1) AND (length(job_type) <= 63)))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000');
CREATE VIEW jobctl.daily_figures AS
 SELECT job_figures.job_type,
    job_figures.day,
    (sum(job_figures.succeeded))::bigint AS succeeded,
    (sum(job_figures.dead))::bigint AS dead,
    (sum(job_figures.expired))::bigint AS expired,
    (sum(job_figures.dropped))::bigint AS dropped,
    (sum(job_figures.failed_attempts))::bigint AS failed_attempts,
    (sum(job_figures.retried_attempts))::bigint AS retried_attempts,
    sum(job_figures.run_time_seconds) AS run_time_seconds,
    sum(job_figures.wait_seconds) AS wait_seconds,
    ARRAY[(sum(job_figures.waits[1]))::bigint, (sum(job_figures.waits[2]))::bigint, (sum(job_figures.waits[3]))::bigint, (sum(job_figures.waits[4]))::bigint, (sum(job_figures.waits[5]))::bigint, (sum(job_figures.waits[6]))::bigint, (sum(job_figures.waits[7]))::bigint] AS waits,
    max(job_figures.last_ended_at) AS last_ended_at,
    (array_agg(job_figures.last_status ORDER BY job_figures.last_ended_at DESC NULLS LAST))[1] AS last_status,
    max(job_figures.last_succeeded_at) AS last_succeeded_at
   FROM jobctl.job_figures
  GROUP BY job_figures.job_type, job_figures.day;
CREATE VIEW jobctl.dead_runs AS
 SELECT job_runs.id,
    job_runs.job_type,
    job_runs.queue,
    job_runs.attempts,
    (job_runs.max_attempts + job_runs.uncounted_attempts) AS max_attempts,
    job_runs.error_type,
    job_runs.last_error,
    job_runs.failed_at,
    job_runs.finished_at,
    job_runs.created_at
   FROM jobctl.job_runs
  WHERE ((job_runs.status = 'dead'::text) AND (job_runs.settled_at IS NULL));
CREATE TABLE jobctl.job_attempts (
    run_id bigint NOT NULL,
    attempt integer NOT NULL,
    worker text NOT NULL,
    started_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone NOT NULL,
    outcome text NOT NULL,
    error_type text,
    error text,
    exit_code integer,
    signal integer,
    http_status integer,
    output text,
    output_bytes bigint DEFAULT 0 NOT NULL,
    output_truncated boolean DEFAULT false NOT NULL,
    cause text,
    incident text,
    CONSTRAINT only_failures_have_an_incident CHECK (((outcome = ANY (ARRAY['failed'::text, 'lease_expired'::text])) = (incident IS NOT NULL))),
    CONSTRAINT outcome_is_known CHECK ((outcome = ANY (ARRAY['succeeded'::text, 'failed'::text, 'cancelled'::text, 'interrupted'::text, 'snoozed'::text, 'lease_expired'::text]))),
    CONSTRAINT texts_are_bounded CHECK (((octet_length(worker) <= 255) AND (octet_length(error_type) <= 100) AND (GREATEST(octet_length(error), octet_length(output)) <= (4 * 262144)))),
    CONSTRAINT times_are_dates CHECK (((LEAST(started_at, finished_at) >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (GREATEST(started_at, finished_at) < '10000-01-01 00:00:00+00'::timestamp with time zone)))
);
CREATE VIEW jobctl.failing_jobs AS
 SELECT run.job_type,
    streak.failures,
    streak.since_at,
    run.id AS run_id,
    newest.attempt,
    COALESCE(((newest.error_type = 'spawn'::text) OR (newest.exit_code = ANY (ARRAY[126, 127]))), false) AS is_lasting,
        CASE
            WHEN (run.status = ANY (ARRAY['queued'::text, 'failed'::text])) THEN run.run_at
            ELSE NULL::timestamp with time zone
        END AS next_attempt_at
   FROM ((( SELECT (sum(failed.failures_in_row))::bigint AS failures,
            min(failed.failing_since) AS since_at,
            (array_agg(failed.failing_run ORDER BY failed.last_ended_at DESC))[1] AS run_id
           FROM (jobctl.job_figures failed
             LEFT JOIN LATERAL ( SELECT max(figures.last_succeeded_at) AS last_at
                   FROM jobctl.job_figures figures
                  WHERE ((figures.job_type = failed.job_type) AND (figures.day >= failed.day))) success ON (true))
          WHERE ((failed.failing_since IS NOT NULL) AND (failed.failing_since > COALESCE(success.last_at, '-infinity'::timestamp with time zone)))
          GROUP BY failed.job_type) streak
     JOIN jobctl.job_runs run ON ((run.id = streak.run_id)))
     LEFT JOIN LATERAL ( SELECT attempt.attempt,
            attempt.error_type,
            attempt.exit_code
           FROM jobctl.job_attempts attempt
          WHERE ((attempt.run_id = run.id) AND (attempt.outcome = ANY (ARRAY['failed'::text, 'lease_expired'::text])))
          ORDER BY attempt.attempt DESC
         LIMIT 1) newest ON (true))
  WHERE (run.status = ANY (ARRAY['blocked'::text, 'queued'::text, 'failed'::text, 'running'::text]));
CREATE TABLE jobctl.job_predecessors (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    definition_id bigint NOT NULL,
    scheduled_for timestamp with time zone,
    job_type text NOT NULL,
    run_id bigint NOT NULL,
    noted_at timestamp with time zone DEFAULT now() NOT NULL,
    is_new boolean DEFAULT true NOT NULL,
    CONSTRAINT times_are_dates CHECK (((LEAST(scheduled_for, noted_at) >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (GREATEST(scheduled_for, noted_at) < '10000-01-01 00:00:00+00'::timestamp with time zone)))
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='100');
CREATE VIEW jobctl.following_jobs AS
 SELECT DISTINCT noted.definition_id,
    definition.name AS job_type,
    noted.scheduled_for
   FROM (jobctl.job_predecessors noted
     LEFT JOIN jobctl.job_definitions definition ON ((definition.id = noted.definition_id)))
  WHERE (noted.is_new OR ((noted.scheduled_for IS NOT NULL) AND (noted.noted_at <= (now() - '7 days'::interval))));
ALTER TABLE jobctl.job_definitions ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME jobctl.job_definitions_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE jobctl.job_effects (
    key text NOT NULL,
    run_id bigint,
    attempt integer,
    recorded_by text DEFAULT CURRENT_USER NOT NULL,
    recorded_at timestamp with time zone DEFAULT now() NOT NULL,
    completed_at timestamp with time zone,
    result text,
    CONSTRAINT key_is_1_to_255_bytes CHECK (((octet_length(key) >= 1) AND (octet_length(key) <= 255))),
    CONSTRAINT key_is_plain CHECK ((key !~ '^-|[\u0001-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]'::text)),
    CONSTRAINT only_completed_has_a_result CHECK (((completed_at IS NOT NULL) OR (result IS NULL))),
    CONSTRAINT result_is_bounded CHECK ((octet_length(result) <= 8192)),
    CONSTRAINT times_are_dates CHECK (((LEAST(recorded_at, completed_at) >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (GREATEST(recorded_at, completed_at) < '10000-01-01 00:00:00+00'::timestamp with time zone)))
);
CREATE TABLE jobctl.job_events (
    id bigint NOT NULL,
    recorded_at timestamp with time zone DEFAULT now() NOT NULL,
    action text NOT NULL,
    run_id bigint,
    job text,
    recorded_by text DEFAULT concat_ws(' as '::text, SESSION_USER, NULLIF(CURRENT_USER, SESSION_USER)) NOT NULL,
    host_user text,
    reason text,
    detail text,
    operation text,
    before jsonb,
    CONSTRAINT action_is_known CHECK ((action = ANY (ARRAY['retry'::text, 'cancel'::text, 'edit'::text, 'settle'::text, 'prune'::text, 'pause'::text, 'resume'::text, 'hold'::text, 'release'::text, 'forget'::text, 'restore'::text, 'accept-restore'::text, 'add'::text, 'change'::text, 'enable'::text, 'disable'::text, 'remove'::text, 'alert'::text, 'undo'::text]))),
    CONSTRAINT operation_is_short CHECK ((octet_length(operation) <= 100)),
    CONSTRAINT texts_are_short CHECK ((GREATEST(length(host_user), length(reason), length(detail)) <= 1000)),
    CONSTRAINT times_are_dates CHECK (((recorded_at >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (recorded_at < '10000-01-01 00:00:00+00'::timestamp with time zone)))
);
ALTER TABLE jobctl.job_events ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME jobctl.job_events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE jobctl.job_lock_slots (
    slot integer NOT NULL
);
CREATE TABLE jobctl.job_locked_runs (
    run_id bigint NOT NULL,
    attempt integer NOT NULL,
    worker text NOT NULL,
    started_at timestamp with time zone NOT NULL,
    locked_until timestamp with time zone NOT NULL,
    result jsonb,
    written_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT times_are_dates CHECK (((LEAST(started_at, locked_until, written_at) >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (GREATEST(started_at, locked_until, written_at) < '10000-01-01 00:00:00+00'::timestamp with time zone)))
);
ALTER TABLE jobctl.job_runs ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME jobctl.job_runs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
ALTER TABLE jobctl.job_schedules ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME jobctl.job_schedules_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE jobctl.job_share_rates (
    definition_id bigint NOT NULL,
    share text COLLATE pg_catalog."C",
    next_at timestamp with time zone NOT NULL
);
CREATE TABLE jobctl.job_workers (
    worker text NOT NULL,
    version text NOT NULL,
    last_tick_at timestamp with time zone NOT NULL,
    previous_tick_at timestamp with time zone,
    login text DEFAULT concat_ws(' as '::text, SESSION_USER, NULLIF(CURRENT_USER, SESSION_USER)) NOT NULL,
    os_user text,
    ticking_since timestamp with time zone DEFAULT now() NOT NULL,
    missed_for interval GENERATED ALWAYS AS (
CASE
    WHEN ((NOT isfinite(last_tick_at)) OR (NOT isfinite(ticking_since))) THEN '00:00:00'::interval
    WHEN ((last_tick_at - ticking_since) >= '1 day'::interval) THEN '100 years'::interval
    ELSE GREATEST((last_tick_at - ticking_since), '00:00:00'::interval)
END) STORED NOT NULL,
    queues text[] DEFAULT '{}'::text[] NOT NULL,
    excluded_jobs text[] DEFAULT '{}'::text[] NOT NULL,
    excluded_kinds text[] DEFAULT '{}'::text[] NOT NULL,
    claiming_tick text,
    claiming_until timestamp with time zone,
    slow_at timestamp with time zone,
    slow_seconds double precision,
    slow_since timestamp with time zone,
    CONSTRAINT only_a_claiming_tick_has_a_lease CHECK (((claiming_tick IS NULL) = (claiming_until IS NULL))),
    CONSTRAINT texts_are_short CHECK ((GREATEST(octet_length(worker), octet_length(version), octet_length(os_user)) <= 255)),
    CONSTRAINT times_are_dates CHECK (((LEAST(last_tick_at, previous_tick_at, ticking_since, claiming_until, slow_at, slow_since) >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (GREATEST(last_tick_at, previous_tick_at, ticking_since, claiming_until, slow_at, slow_since) < '10000-01-01 00:00:00+00'::timestamp with time zone)))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='100');
CREATE VIEW jobctl.leases AS
 SELECT run.id,
    run.job_type,
    run.attempts AS attempt,
    run.locked_by AS worker,
    run.started_at,
    GREATEST(run.locked_until, kept.locked_until) AS locked_until,
    (kept.result IS NOT NULL) AS has_result,
    ((GREATEST(run.locked_until, kept.locked_until) < now()) AND (kept.result IS NULL)) AS is_lost,
        CASE
            WHEN (kept.result IS NOT NULL) THEN kept.written_at
            ELSE NULL::timestamp with time zone
        END AS result_at,
    (GREATEST(run.locked_until, kept.locked_until) > (now() + '1 day 00:01:00'::interval)) AS is_ahead
   FROM (jobctl.job_runs run
     LEFT JOIN jobctl.job_locked_runs kept ON (((kept.run_id = run.id) AND (kept.attempt = run.attempts) AND (kept.started_at = run.started_at))))
  WHERE (run.status = 'running'::text);
CREATE VIEW jobctl.long_running_runs AS
 SELECT run.id,
    run.job_type,
    run.queue,
    run.attempts,
    (run.max_attempts + run.uncounted_attempts) AS max_attempts,
    run.locked_by,
    run.started_at,
    (EXTRACT(epoch FROM (GREATEST(now(), run.started_at) - run.started_at)))::double precision AS run_time_seconds,
    lease.locked_until
   FROM (jobctl.job_runs run
     JOIN jobctl.leases lease ON ((lease.id = run.id)))
  WHERE ((run.status = 'running'::text) AND ((run.started_at < (now() - '00:10:00'::interval)) OR (run.started_at > (now() + '00:01:00'::interval))));
CREATE VIEW jobctl.pending_lock_runs AS
 SELECT job_runs.id,
    job_runs.job_type,
    (job_runs.lock COLLATE "C") AS lock,
    job_runs.queue,
    job_runs.priority,
    job_runs.run_at,
    job_runs.expires_at,
    job_runs.worker,
    job_runs.idempotency_key
   FROM jobctl.job_runs
  WHERE (COALESCE((job_runs.status = ANY (ARRAY['queued'::text, 'failed'::text])), false) AND (job_runs.lock IS NOT NULL));
CREATE VIEW jobctl.pending_runs AS
 SELECT job_runs.id,
    job_runs.job_type,
    job_runs.queue,
    job_runs.priority,
    job_runs.status,
    job_runs.run_at,
    ((job_runs.run_at <= now()) AND COALESCE((job_runs.expires_at > now()), true)) AS is_due,
    job_runs.expires_at,
    job_runs.attempts,
    (job_runs.max_attempts + job_runs.uncounted_attempts) AS max_attempts,
    job_runs.snoozed_attempts,
    job_runs.last_error,
    job_runs.failed_at,
    job_runs.created_at,
    job_runs.updated_at,
    job_runs.worker,
    job_runs.lock,
    job_runs.error_type
   FROM jobctl.job_runs
  WHERE (job_runs.status = ANY (ARRAY['queued'::text, 'failed'::text]));
CREATE VIEW jobctl.running_locks AS
 SELECT effective.lock,
    count(*) AS runs,
    jobctl.most_with_lock(effective.lock) AS most
   FROM ((jobctl.job_runs run
     LEFT JOIN jobctl.job_definitions definition ON (((definition.name = run.job_type) AND (definition.lock_name IS NOT NULL))))
     CROSS JOIN LATERAL ( SELECT COALESCE(definition.lock_name, run.lock) AS lock) effective)
  WHERE ((run.status = 'running'::text) AND (effective.lock IS NOT NULL))
  GROUP BY effective.lock;
CREATE VIEW jobctl.scheduling_jobs AS
 WITH RECURSIVE found AS (
         SELECT min(schedule.definition_id) AS id
           FROM jobctl.job_schedules schedule
        UNION ALL
         SELECT ( SELECT min(schedule.definition_id) AS min
                   FROM jobctl.job_schedules schedule
                  WHERE (schedule.definition_id > found_1.id)) AS min
           FROM found found_1
          WHERE (found_1.id IS NOT NULL)
        )
 SELECT definition.id
   FROM (found
     JOIN jobctl.job_definitions definition ON ((definition.id = found.id)))
  WHERE (definition.enabled AND (definition.paused_at IS NULL));
CREATE TABLE jobctl.schema_migrations (
    version integer,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE VIEW jobctl.seen_workers AS
 SELECT worker.worker,
        CASE
            WHEN ((worker.claiming_until >= now()) AND (worker.claiming_until <= (now() + '00:10:00'::interval))) THEN now()
            WHEN (worker.last_tick_at <= (now() + '00:01:00'::interval)) THEN worker.last_tick_at
            ELSE NULL::timestamp with time zone
        END AS seen_at,
    (held.name IS NOT NULL) AS is_held
   FROM (jobctl.job_workers worker
     LEFT JOIN ( SELECT DISTINCT hold.name
           FROM jobctl.current_holds hold
          WHERE (hold.scope = 'worker'::text)) held ON ((held.name = worker.worker)));
CREATE VIEW jobctl.unaccepted_restores AS
 SELECT job_events.recorded_at,
    job_events.detail
   FROM jobctl.job_events
  WHERE ((job_events.action = 'restore'::text) AND (job_events.id = ( SELECT max(job_events_1.id) AS max
           FROM jobctl.job_events job_events_1
          WHERE (job_events_1.action = ANY (ARRAY['restore'::text, 'accept-restore'::text])))));
ALTER TABLE ONLY jobctl.job_attempts
    ADD CONSTRAINT job_attempts_pkey PRIMARY KEY (run_id, attempt);
ALTER TABLE ONLY jobctl.job_definitions
    ADD CONSTRAINT job_definitions_name_key UNIQUE (name);
ALTER TABLE ONLY jobctl.job_definitions
    ADD CONSTRAINT job_definitions_pkey PRIMARY KEY (id);
ALTER TABLE ONLY jobctl.job_dependencies
    ADD CONSTRAINT job_dependencies_pkey PRIMARY KEY (after_id, run_id);
ALTER TABLE ONLY jobctl.job_effects
    ADD CONSTRAINT job_effects_pkey PRIMARY KEY (key);
ALTER TABLE ONLY jobctl.job_events
    ADD CONSTRAINT job_events_pkey PRIMARY KEY (id);
ALTER TABLE ONLY jobctl.job_figures
    ADD CONSTRAINT job_figures_pkey PRIMARY KEY (id);
ALTER TABLE ONLY jobctl.job_holds
    ADD CONSTRAINT job_holds_pkey PRIMARY KEY (id);
ALTER TABLE ONLY jobctl.job_lock_slots
    ADD CONSTRAINT job_lock_slots_pkey PRIMARY KEY (slot);
ALTER TABLE ONLY jobctl.job_locked_runs
    ADD CONSTRAINT job_locked_runs_pkey PRIMARY KEY (run_id);
ALTER TABLE ONLY jobctl.job_predecessors
    ADD CONSTRAINT job_predecessors_pkey PRIMARY KEY (id);
ALTER TABLE ONLY jobctl.job_runs
    ADD CONSTRAINT job_runs_pkey PRIMARY KEY (id) WITH (fillfactor='50');
ALTER TABLE ONLY jobctl.job_schedules
    ADD CONSTRAINT job_schedules_name_key UNIQUE (name);
ALTER TABLE ONLY jobctl.job_schedules
    ADD CONSTRAINT job_schedules_pkey PRIMARY KEY (id);
ALTER TABLE ONLY jobctl.job_workers
    ADD CONSTRAINT job_workers_pkey PRIMARY KEY (worker);
ALTER TABLE ONLY jobctl.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (name);
ALTER TABLE ONLY jobctl.schema_migrations
    ADD CONSTRAINT schema_migrations_version_key UNIQUE (version);
CREATE INDEX job_attempts_by_cause ON jobctl.job_attempts USING btree (cause, finished_at) WHERE (incident IS NOT NULL);
CREATE INDEX job_attempts_by_incident ON jobctl.job_attempts USING btree (incident, finished_at) WHERE (incident IS NOT NULL);
CREATE INDEX job_attempts_failed ON jobctl.job_attempts USING btree (finished_at, run_id, attempt) WHERE (outcome = ANY (ARRAY['failed'::text, 'lease_expired'::text]));
CREATE INDEX job_definitions_following ON jobctl.job_definitions USING btree (id) WHERE (after IS NOT NULL);
CREATE INDEX job_definitions_hooked ON jobctl.job_definitions USING btree (id) WHERE has_hooks;
CREATE INDEX job_definitions_limited ON jobctl.job_definitions USING btree (id) WHERE is_limited;
CREATE INDEX job_definitions_lock ON jobctl.job_definitions USING btree (lock_name) WHERE (lock_name IS NOT NULL);
CREATE INDEX job_definitions_next_run ON jobctl.job_definitions USING btree (next_run_at) WHERE (enabled AND (paused_at IS NULL) AND (schedule IS NOT NULL));
CREATE INDEX job_dependencies_ended ON jobctl.job_dependencies USING btree (state, after_id) WHERE (state = ANY (ARRAY['stuck'::text, 'due'::text]));
CREATE INDEX job_dependencies_run ON jobctl.job_dependencies USING btree (run_id, after_id);
CREATE INDEX job_dependencies_unmet ON jobctl.job_dependencies USING btree (run_id) WHERE (state <> 'met'::text);
CREATE INDEX job_effects_open ON jobctl.job_effects USING btree (recorded_at) WHERE (completed_at IS NULL);
CREATE INDEX job_effects_run ON jobctl.job_effects USING btree (run_id) WHERE (run_id IS NOT NULL);
CREATE INDEX job_events_definition ON jobctl.job_events USING btree (job, id) WHERE (run_id IS NULL);
CREATE INDEX job_events_operation ON jobctl.job_events USING btree (operation, id) WHERE (operation IS NOT NULL);
CREATE INDEX job_events_recorded ON jobctl.job_events USING btree (recorded_at);
CREATE INDEX job_events_restore ON jobctl.job_events USING btree (id) WHERE (action = ANY (ARRAY['restore'::text, 'accept-restore'::text]));
CREATE INDEX job_events_run ON jobctl.job_events USING btree (run_id) WHERE (run_id IS NOT NULL);
CREATE INDEX job_figures_failing ON jobctl.job_figures USING btree (job_type) WHERE (failing_since IS NOT NULL);
CREATE INDEX job_figures_job ON jobctl.job_figures USING btree (job_type, day, part);
CREATE INDEX job_predecessors_new ON jobctl.job_predecessors USING btree (definition_id) WHERE is_new;
CREATE INDEX job_predecessors_noted ON jobctl.job_predecessors USING btree (noted_at) WHERE (scheduled_for IS NOT NULL);
CREATE INDEX job_predecessors_time ON jobctl.job_predecessors USING btree (definition_id, scheduled_for);
CREATE INDEX job_runs_blocked ON jobctl.job_runs USING btree (job_type, id) WHERE (status = 'blocked'::text);
CREATE INDEX job_runs_dead ON jobctl.job_runs USING btree (finished_at, id) WHERE ((status = 'dead'::text) AND (settled_at IS NULL));
CREATE INDEX job_runs_dead_of_job ON jobctl.job_runs USING btree (job_type, id) WHERE (status = 'dead'::text);
CREATE INDEX job_runs_ended_key ON jobctl.job_runs USING btree (idempotency_key text_pattern_ops, id) WHERE ((idempotency_key IS NOT NULL) AND (finished_at IS NOT NULL));
CREATE INDEX job_runs_expiring ON jobctl.job_runs USING btree (expires_at) WHERE ((expires_at IS NOT NULL) AND (status = ANY (ARRAY['queued'::text, 'failed'::text])));
CREATE INDEX job_runs_finished ON jobctl.job_runs USING btree (finished_at, id) WHERE (finished_at IS NOT NULL);
CREATE UNIQUE INDEX job_runs_fire ON jobctl.job_runs USING btree (definition_id, COALESCE(schedule, ''::text), scheduled_for, COALESCE(worker, ''::text)) WHERE (scheduled_for IS NOT NULL);
CREATE INDEX job_runs_job ON jobctl.job_runs USING btree (job_type, id) WITH (fillfactor='50') WHERE (status <> 'running'::text);
CREATE UNIQUE INDEX job_runs_key ON jobctl.job_runs USING btree (idempotency_key, key_scope) WHERE ((idempotency_key IS NOT NULL) AND ((key_scope = 'retained'::text) OR ((key_scope = 'live'::text) AND (status = ANY (ARRAY['blocked'::text, 'queued'::text, 'running'::text, 'failed'::text])))));
CREATE INDEX job_runs_replaced ON jobctl.job_runs USING btree (idempotency_key) WHERE ((status = 'running'::text) AND (key_scope = 'replaced'::text));
CREATE INDEX job_runs_running ON jobctl.job_runs USING btree (job_type, locked_by) WHERE (status = 'running'::text);
CREATE INDEX job_runs_unfinished_of_schedule ON jobctl.job_runs USING btree (schedule) WHERE ((schedule IS NOT NULL) AND (finished_at IS NULL));
CREATE INDEX job_runs_waiting ON jobctl.job_runs USING btree (queue, priority, run_at, id) WHERE (status = ANY (ARRAY['queued'::text, 'failed'::text]));
CREATE INDEX job_runs_waiting_for_lock ON jobctl.job_runs USING btree (lock COLLATE "C", queue, priority, run_at, id) WHERE ((lock IS NOT NULL) AND COALESCE((status = ANY (ARRAY['queued'::text, 'failed'::text])), false));
CREATE INDEX job_runs_waiting_of_job ON jobctl.job_runs USING btree (job_type, COALESCE(share, ''::text), queue, priority, run_at, id) WHERE ((status = ANY (ARRAY['queued'::text, 'failed'::text])) AND (job_type <> ALL (ARRAY['shell'::text, 'http'::text])));
CREATE INDEX job_schedules_due ON jobctl.job_schedules USING btree (definition_id, due_at);
CREATE INDEX job_schedules_owner ON jobctl.job_schedules USING btree (owner, definition_id, id);
CREATE INDEX job_schedules_put_off ON jobctl.job_schedules USING btree (definition_id) WHERE (put_off_until IS NOT NULL);
CREATE INDEX job_share_rates_old ON jobctl.job_share_rates USING btree (definition_id, next_at);
CREATE UNIQUE INDEX job_share_rates_share ON jobctl.job_share_rates USING btree (definition_id, share);
CREATE TRIGGER attempts_only_go_up AFTER UPDATE OF attempts ON jobctl.job_runs FOR EACH ROW WHEN (((new.attempts < old.attempts) AND ((new.attempts < (old.attempts - 1)) OR (old.status <> 'running'::text) OR (new.status <> ALL (ARRAY['queued'::text, 'cancelled'::text]))))) EXECUTE FUNCTION jobctl.refuse_update('attempts', 'go down when its claim is released');
CREATE TRIGGER changed_failures_name_their_incident BEFORE UPDATE OF outcome, error_type, error, output, incident ON jobctl.job_attempts FOR EACH ROW EXECUTE FUNCTION jobctl.name_incident();
CREATE TRIGGER deleted_runs_have_no_history AFTER DELETE ON jobctl.job_runs REFERENCING OLD TABLE AS deleted FOR EACH STATEMENT EXECUTE FUNCTION jobctl.forget_history();
CREATE TRIGGER effects_are_settled_by_their_recorder BEFORE DELETE OR UPDATE ON jobctl.job_effects FOR EACH ROW WHEN ((old.recorded_by <> CURRENT_USER)) EXECUTE FUNCTION jobctl.keep_effect();
CREATE TRIGGER failures_name_their_incident BEFORE INSERT ON jobctl.job_attempts FOR EACH ROW WHEN (((new.outcome = ANY (ARRAY['failed'::text, 'lease_expired'::text])) OR (new.incident IS NOT NULL))) EXECUTE FUNCTION jobctl.name_incident();
CREATE TRIGGER key_scope_only_follows_a_replacement AFTER UPDATE OF key_scope ON jobctl.job_runs FOR EACH ROW WHEN (((new.key_scope <> old.key_scope) AND (new.idempotency_key = old.idempotency_key) AND ((old.key_scope <> 'replaced'::text) OR (new.key_scope <> 'live'::text)) AND ((old.key_scope <> 'live'::text) OR (new.key_scope <> 'replaced'::text) OR (old.status <> 'running'::text)))) EXECUTE FUNCTION jobctl.refuse_update('key_scope', 'change between live and replaced');
CREATE TRIGGER no_runs_have_no_history AFTER TRUNCATE ON jobctl.job_runs FOR EACH STATEMENT EXECUTE FUNCTION jobctl.forget_history();
CREATE TRIGGER uncounted_attempts_follow_attempts AFTER UPDATE OF uncounted_attempts ON jobctl.job_runs FOR EACH ROW WHEN (((new.uncounted_attempts <> old.uncounted_attempts) AND ((new.uncounted_attempts <> (old.uncounted_attempts + 1)) OR (old.status <> 'running'::text) OR (new.status <> ALL (ARRAY['queued'::text, 'cancelled'::text]))))) EXECUTE FUNCTION jobctl.refuse_update('uncounted_attempts', 'go up when an attempt ends');
ALTER TABLE ONLY jobctl.job_schedules
    ADD CONSTRAINT job_schedules_definition_id_fkey FOREIGN KEY (definition_id) REFERENCES jobctl.job_definitions(id) ON DELETE CASCADE;
ALTER TABLE ONLY jobctl.job_share_rates
    ADD CONSTRAINT job_share_rates_definition_id_fkey FOREIGN KEY (definition_id) REFERENCES jobctl.job_definitions(id) ON DELETE CASCADE;
