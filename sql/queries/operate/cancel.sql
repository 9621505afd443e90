-- Cancels runs: blocked, queued or failed -> cancelled. For a running run, records only the
-- request: its worker sees this at the next heartbeat and stops the job.
-- $1  ids    $2  from: statuses that a run may have    $3  host_user    $4  reason, for the trail
-- $5  operation, for undo.sql
-- A row per existing id: its status before, and whether the request was granted. `is_blocked` is
-- always false, because a cancel blocks no run.
WITH asked AS MATERIALIZED (
    SELECT
        run.id,
        run.job_type,
        run.status,
        run.status = ANY ($2::text[])
            AND run.status IN ('blocked', 'queued', 'failed', 'running') AS granted,
        jsonb_build_object(
            'status', run.status,
            'cancel_requested_at', run.cancel_requested_at,
            'finished_at', run.finished_at
        ) AS before
    FROM jobctl.job_runs AS run
    WHERE run.id = ANY ($1::bigint[])
    ORDER BY run.id
    FOR NO KEY UPDATE
),
requested AS (
    UPDATE jobctl.job_runs AS run
    SET
        cancel_requested_at = coalesce(run.cancel_requested_at, now()),
        updated_at = now()
    FROM asked
    WHERE run.id = asked.id
        AND asked.status = 'running'
        AND asked.granted
    RETURNING run.id
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
        'cancel' AS action,
        asked.id,
        asked.job_type,
        $3::text AS host_user,
        $4::text AS reason,
        'was ' || asked.status AS detail,
        $5::text AS operation,
        asked.before
    FROM asked
    WHERE asked.granted
),
ended AS MATERIALIZED (
    SELECT
    FROM jobctl.end_runs(
        way => 'cancel',
        runs => ARRAY(SELECT asked.id FROM asked WHERE asked.granted AND asked.status <> 'running')
    )
)
SELECT asked.id, asked.status, asked.granted, false AS is_blocked
FROM asked
-- PostgreSQL executes a SELECT in WITH only if the statement reads it, so read `ended`.
CROSS JOIN ended
-- Checks only the running runs. For the other runs, end_runs checks that each row was written.
CROSS JOIN jobctl.require_written(
    'job_runs',
    chosen => (SELECT count(*) FROM asked WHERE asked.granted AND asked.status = 'running'),
    written => (SELECT count(*) FROM requested)
)
