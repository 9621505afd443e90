-- Settles dead runs: they stay dead and in the history, but are no longer reported. A run that was
-- settled before keeps its settled_at.
-- $1  ids    $2  from: statuses that a run may have    $3  host_user    $4  reason, for the trail
-- $5  operation, for undo.sql
-- A row per existing id: its status, and whether it is settled now (`granted`). `is_blocked` is
-- always false, because this statement blocks no run.
WITH asked AS MATERIALIZED (
    SELECT
        run.id,
        run.status,
        run.status = 'dead' AND run.status = ANY ($2::text[]) AS granted,
        jsonb_build_object('settled_at', run.settled_at) AS before
    FROM jobctl.job_runs AS run
    WHERE run.id = ANY ($1::bigint[])
    ORDER BY run.id
    FOR NO KEY UPDATE
),
settled AS (
    UPDATE jobctl.job_runs AS run
    SET
        -- The CASE is needed although `asked` has checked the status. PostgreSQL first computes
        -- this value from the row version in the statement's snapshot. There, the run may not be
        -- dead yet, and the constraint only_dead_is_settled would fail.
        settled_at = CASE WHEN run.status = 'dead' THEN coalesce(run.settled_at, now()) END,
        updated_at = now()
    FROM asked
    WHERE run.id = asked.id
        AND asked.granted
    RETURNING run.id, run.job_type
),
trail AS (
    INSERT INTO jobctl.job_events (action, run_id, job, host_user, reason, operation, before)
    SELECT 'settle', settled.id, settled.job_type, $3::text, $4::text, $5::text, asked.before
    FROM settled
    JOIN asked ON asked.id = settled.id
)
SELECT
    asked.id,
    asked.status,
    asked.granted,
    false AS is_blocked
FROM asked
CROSS JOIN jobctl.require_written(
    'job_runs',
    chosen => (SELECT count(*) FROM asked WHERE asked.granted),
    written => (SELECT count(*) FROM settled)
)
