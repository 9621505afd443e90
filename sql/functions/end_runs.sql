-- Ends attempts and runs in one of eight ways, and writes what follows from that: history, figures,
-- hooks, and marks for runs that wait. docs/internals/architecture.md has a table of what each way
-- writes. Internal: only jobctl calls it.
--
-- `way`, the reason of the end:
--   result         an attempt ended with the result in the arrays
--   lost           the lease of an attempt ended without a result
--   release        a claim ends before its attempt started
--   expired        the run did not start in time
--   dropped        the definition was full
--   unreadable     no claim can read the run
--   cancel         an operator asked for it
--   predecessor    a run that it waited for did not end as it asks
--
-- The other arguments are arrays of equal length, one element a run, or NULL. For `result`, `lost`
-- and `release`, the worker, the attempt number and the time of the claim must match: otherwise the
-- claim is over, and nothing is written.
--
-- The attempt number alone does not identify a claim. A worker can claim the same number twice,
-- after a release or after a failover to a replica that does not have the first claim. The times of
-- such claims differ by at least a microsecond, unless the clock of the new primary is behind and
-- both claims fall into the same microsecond.
--
-- A run that an operator asked to cancel, or whose live key a newer run took, ends `cancelled`
-- instead of waiting again. A run without an attempt left ends `dead`, also if its max_attempts was
-- lowered meanwhile. Up to 100 interrupted and up to 100 snoozed attempts of a run do not count
-- towards max_attempts.
--
-- Returns arrays, one element a run that it changed; NULL if it changed none. Nothing is written
-- for the other runs. Also returns
--   expires_first    whether the run expires before its next attempt
--   followed         the ended runs that others wait for, or that jobs follow. In a later
--                    transaction, decide_followers and enqueue_following decide about these
--   queues_runs      whether other runs may be due now, or after these decisions
CREATE OR REPLACE FUNCTION jobctl.end_runs(
    way text,
    runs bigint[],
    workers text[] DEFAULT NULL,
    attempt_numbers integer[] DEFAULT NULL,
    claim_times timestamptz[] DEFAULT NULL,
    next_statuses text[] DEFAULT NULL,
    next_attempt_in float8[] DEFAULT NULL,
    outcomes text[] DEFAULT NULL,
    error_types text[] DEFAULT NULL,
    errors text[] DEFAULT NULL,
    details text[] DEFAULT NULL,
    exit_codes integer[] DEFAULT NULL,
    signals integer[] DEFAULT NULL,
    http_statuses integer[] DEFAULT NULL,
    outputs text[] DEFAULT NULL,
    output_bytes bigint[] DEFAULT NULL,
    are_truncated boolean[] DEFAULT NULL,
    started_ago float8[] DEFAULT NULL,
    ended_ago float8[] DEFAULT NULL,
    OUT ids bigint[],
    OUT attempts integer[],
    OUT claimed_at timestamptz[],
    OUT statuses text[],
    OUT expires_first boolean[],
    OUT followed bigint[],
    OUT queues_runs boolean
)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
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
