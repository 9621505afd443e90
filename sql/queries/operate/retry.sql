-- Retries runs: any status in `from` -> queued, due now.
-- - A cancelled run is blocked if it waits for runs that have not ended as it asks. If its own time
--   is in the future, it is due at that time.
-- - A blocked run no longer waits for other runs.
-- - A running run is taken from its worker.
-- - A run without an attempt left gets as many more as it had at first.
-- - A run expires only if it keeps its time.
-- - A run that a newer one replaced gets its live key back.
-- $1  ids    $2  from: statuses that a run may have    $3  host_user    $4  reason, for the trail
-- $5  cancelled_now: whether cancelled runs are due now, too, and wait for no other runs
-- $6  unsettled: whether to leave out settled runs    $7  operation, for undo.sql
-- A row per existing id that is not left out: its status before, whether it was retried, and
-- whether it is blocked now. If a run was not retried although its status is in `from`, another run
-- has its live key.
WITH asked AS MATERIALIZED (
    SELECT
        run.id,
        run.status,
        run.attempts,
        run.locked_by,
        run.started_at,
        run.live_output,
        run.idempotency_key,
        run.key_scope,
        -- The error is why the run was cancelled, so a retry removes it. Errors of attempts stay.
        coalesce(run.error_type, '') IN ('expired', 'dropped', 'predecessor') AS has_cancel_error,
        jsonb_build_object(
            'status', run.status,
            'run_at', run.run_at,
            'max_attempts', run.max_attempts,
            'granted_attempts', run.granted_attempts,
            'key_scope', run.key_scope,
            'cancel_requested_at', run.cancel_requested_at,
            'expires_at', run.expires_at,
            'last_error', run.last_error,
            'error_type', run.error_type,
            'finished_at', run.finished_at,
            'settled_at', run.settled_at
        ) AS before
    FROM jobctl.job_runs AS run
    WHERE run.id = ANY ($1::bigint[])
        AND (run.settled_at IS NULL OR NOT $6::boolean)
    ORDER BY run.id
    FOR NO KEY UPDATE
),
granted AS MATERIALIZED (
    SELECT asked.*
    FROM asked
    WHERE asked.status = ANY ($2::text[])
        -- Another run (`holder`) may have taken the live key, after this run ended or by replacing
        -- it. Only an unfinished run with key_scope `live` holds a live key. If a run takes the key
        -- while this statement runs, the index job_runs_key rejects the statement, and jobctl
        -- sends it again.
        AND NOT EXISTS (
            SELECT FROM jobctl.job_runs AS holder
            WHERE holder.idempotency_key = asked.idempotency_key
                AND holder.key_scope = 'live'
                AND holder.status IN ('blocked', 'queued', 'running', 'failed')
                AND asked.key_scope <> 'retained'
                AND holder.id <> asked.id
        )
        -- If several of the asked runs had the same live key, only the newest is retried. Because
        -- of the condition above, none of them holds the key now: they have ended, or a newer run
        -- replaced them while they were running.
        AND NOT EXISTS (
            SELECT FROM asked AS newer
            WHERE newer.idempotency_key = asked.idempotency_key
                AND newer.key_scope <> 'retained'
                AND newer.status IN ('running', 'succeeded', 'dead', 'cancelled')
                AND newer.status = ANY ($2::text[])
                AND asked.key_scope <> 'retained'
                AND newer.id > asked.id
        )
),
-- Cancelled runs wait for their predecessors again, unless $5 says to start them now.
blocked AS MATERIALIZED (
    SELECT jobctl.reopen_dependencies(
        ARRAY(
            SELECT asked.id
            FROM asked
            WHERE asked.status = 'cancelled'
                AND asked.status = ANY ($2::text[])
                AND NOT $5::boolean
        )
    ) AS ids
),
retried AS (
    UPDATE jobctl.job_runs AS run
    SET
        status = CASE
            WHEN run.id = ANY (blocked.ids) THEN 'blocked'
            ELSE 'queued'
        END,
        -- A time in the past would make the run look overdue.
        run_at = CASE
            WHEN granted.status = 'cancelled' AND NOT $5::boolean THEN greatest(run.run_at, now())
            ELSE now()
        END,
        max_attempts = CASE
            WHEN run.attempts >= run.max_attempts + run.uncounted_attempts
                -- 1000000 is the limit of the constraint max_attempts_in_range.
                THEN least(
                    run.attempts - run.uncounted_attempts
                        + coalesce(run.granted_attempts, run.max_attempts),
                    1000000
                )
            ELSE run.max_attempts
        END,
        granted_attempts = coalesce(run.granted_attempts, run.max_attempts),
        key_scope = CASE run.key_scope WHEN 'replaced' THEN 'live' ELSE run.key_scope END,
        locked_by = NULL,
        locked_until = NULL,
        live_output = NULL,
        cancel_requested_at = NULL,
        expires_at = CASE
            WHEN granted.status = 'cancelled'
                AND NOT $5::boolean
                AND least(run.run_at, run.expires_at) > now()
                THEN run.expires_at
        END,
        last_error = CASE WHEN NOT granted.has_cancel_error THEN run.last_error END,
        error_type = CASE WHEN NOT granted.has_cancel_error THEN run.error_type END,
        finished_at = NULL,
        settled_at = NULL,
        updated_at = now()
    FROM granted
    CROSS JOIN blocked
    WHERE run.id = granted.id
    RETURNING run.id, run.job_type, run.status
),
trail AS (
    INSERT INTO jobctl.job_events (
        action,
        run_id,
        job,
        host_user,
        reason,
        detail,
        operation,
        before
    )
    SELECT
        'retry' AS action,
        retried.id,
        retried.job_type,
        $3::text AS host_user,
        $4::text AS reason,
        'was ' || asked.status AS detail,
        $7::text AS operation,
        -- NULL, because an undo can't return the run to its worker.
        CASE WHEN asked.status <> 'running' THEN asked.before END AS before
    FROM retried
    JOIN asked ON asked.id = retried.id
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
        output,
        output_bytes,
        output_truncated
    )
    SELECT
        asked.id,
        asked.attempts,
        asked.locked_by,
        coalesce(asked.started_at, now()) AS started_at,
        now() AS finished_at,
        'interrupted' AS outcome,
        'interrupted' AS error_type,
        'taken from its holder by retry --force' AS error,
        asked.live_output,
        coalesce(octet_length(asked.live_output), 0) AS output_bytes,
        asked.live_output IS NOT NULL AS output_truncated
    FROM asked
    JOIN retried ON retried.id = asked.id
    WHERE asked.status = 'running'
    ON CONFLICT (run_id, attempt) DO NOTHING
)
SELECT
    asked.id,
    asked.status,
    retried.id IS NOT NULL AS granted,
    coalesce(retried.status = 'blocked', false) AS is_blocked
FROM asked
CROSS JOIN jobctl.require_written(
    'job_runs',
    chosen => (SELECT count(*) FROM granted),
    written => (SELECT count(*) FROM retried)
)
LEFT JOIN retried ON retried.id = asked.id
