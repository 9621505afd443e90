-- Restores the values of runs that an operation changed, if nothing has changed the runs since
-- then. A run that was blocked is queued instead if the runs for which it waited have ended as it
-- asks. This can also restore the end of a run, which otherwise only the function end_runs writes.
-- $1  ids    $2  operation    $3  host_user    $4  reason, for the trail
-- A row per existing id of a run that the operation changed: its status before, and whether its
-- values were restored (`granted`). `is_blocked` is always false, also for runs that are blocked
-- again: only `jobctl retry` prints it.
WITH asked AS MATERIALIZED (
    SELECT
        run.id,
        run.status,
        event.action,
        -- The operation wrote both times with the now() of its transaction.
        event.before IS NOT NULL AND run.updated_at = event.recorded_at AS is_untouched,
        -- The run with the values from before the operation.
        jsonb_populate_record(run, event.before) AS old
    FROM jobctl.job_runs AS run
    CROSS JOIN LATERAL (
        SELECT changed.action, changed.before, changed.recorded_at
        FROM jobctl.job_events AS changed
        WHERE changed.run_id = run.id
            AND changed.operation = $2::text
        -- An edit of a payload and other values writes two events. The event of the payload has no
        -- `before` and can't be undone, so it comes last here.
        ORDER BY changed.before IS NULL, changed.id DESC
        LIMIT 1
    ) AS event
    WHERE run.id = ANY ($1::bigint[])
    ORDER BY run.id
    FOR NO KEY UPDATE OF run
),
-- The runs that must be blocked again: they were blocked before the operation, and a run for which
-- they waited has still not ended as they ask.
blocked AS MATERIALIZED (
    SELECT jobctl.reopen_dependencies(
        ARRAY(
            SELECT asked.id
            FROM asked
            WHERE asked.is_untouched
                AND (asked.old).status = 'blocked'
        )
    ) AS ids
),
undone AS (
    UPDATE jobctl.job_runs AS run
    SET
        status = CASE
            WHEN (asked.old).status = 'blocked' AND run.id <> ALL (blocked.ids) THEN 'queued'
            ELSE (asked.old).status
        END,
        queue = (asked.old).queue,
        priority = (asked.old).priority,
        run_at = (asked.old).run_at,
        expires_at = (asked.old).expires_at,
        max_attempts = (asked.old).max_attempts,
        granted_attempts = (asked.old).granted_attempts,
        timeout = (asked.old).timeout,
        backoff = (asked.old).backoff,
        key_scope = (asked.old).key_scope,
        cancel_requested_at = (asked.old).cancel_requested_at,
        last_error = (asked.old).last_error,
        error_type = (asked.old).error_type,
        finished_at = (asked.old).finished_at,
        settled_at = (asked.old).settled_at,
        updated_at = now()
    FROM asked
    CROSS JOIN blocked
    WHERE run.id = asked.id
        AND asked.is_untouched
    RETURNING run.id, run.job_type, run.finished_at IS NOT NULL AS is_final
),
-- If the undo ends a run again, marks the runs that wait for it: they may have begun to wait after
-- the operation.
marked AS MATERIALIZED (
    SELECT jobctl.mark_followers(
        ARRAY(
            SELECT undone.id
            FROM undone
            WHERE undone.is_final
        )
    ) AS ids
),
trail AS (
    INSERT INTO jobctl.job_events (action, run_id, job, host_user, reason, detail, operation)
    SELECT
        'undo' AS action,
        undone.id,
        undone.job_type,
        $3::text AS host_user,
        $4::text AS reason,
        asked.action || ', was ' || asked.status AS detail,
        $2::text || ' undone' AS operation
    FROM undone
    JOIN asked ON asked.id = undone.id
)
SELECT asked.id, asked.status, undone.id IS NOT NULL AS granted, false AS is_blocked
FROM asked
-- PostgreSQL executes a SELECT in WITH only if the statement reads it, so read `marked`.
CROSS JOIN marked
CROSS JOIN jobctl.require_written(
    'job_runs',
    chosen => (SELECT count(*) FROM asked WHERE asked.is_untouched),
    written => (SELECT count(*) FROM undone)
)
LEFT JOIN undone ON undone.id = asked.id
