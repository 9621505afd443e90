-- blocked, queued or failed -> cancelled. For a running run only the request is recorded: its
-- worker sees it at the next heartbeat.
-- $1  ids    $2  from: statuses that a run may have    $3  host_user    $4  reason, for the trail
-- A row per existing id: its status before, and whether the request was granted.
WITH asked AS MATERIALIZED (
    SELECT run.id, run.status
    FROM jobctl.job_runs AS run
    WHERE run.id = ANY ($1::bigint[])
    ORDER BY run.id
    FOR NO KEY UPDATE
),
stopped AS (
    UPDATE jobctl.job_runs AS run
    SET
        -- The status of `run`, not of `asked`: PostgreSQL first checks constraints against the row
        -- version in this statement's snapshot, which may be older than the locked one.
        status = CASE WHEN run.status = 'running' THEN 'running' ELSE 'cancelled' END,
        finished_at = CASE WHEN run.status = 'running' THEN NULL ELSE now() END,
        cancel_requested_at = coalesce(run.cancel_requested_at, now()),
        updated_at = now()
    FROM asked
    WHERE run.id = asked.id
        AND asked.status IN ('blocked', 'queued', 'failed', 'running')
        AND asked.status = ANY ($2::text[])
    RETURNING run.id, run.job_type, run.status
),
trail AS (
    INSERT INTO jobctl.job_events (action, run_id, job, host_user, reason, detail)
    SELECT 'cancel', stopped.id, stopped.job_type, $3::text, $4::text, 'was ' || asked.status
    FROM stopped
    JOIN asked ON asked.id = stopped.id
),
followed AS MATERIALIZED (
    SELECT jobctl.follow_up(array_agg(stopped.id))
    FROM stopped
    WHERE stopped.status = 'cancelled'
)
SELECT
    asked.id,
    asked.status,
    stopped.id IS NOT NULL AS granted
FROM asked
LEFT JOIN stopped ON stopped.id = asked.id
CROSS JOIN followed
