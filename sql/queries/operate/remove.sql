-- Deletes runs: succeeded, dead or cancelled -> deleted. A trigger deletes the history.
-- $1  ids    $2  from: statuses that a run may have    $3  host_user    $4  reason, for the trail
-- $5  operation
-- A row per existing id: its status, and whether it was deleted (`granted`). `is_blocked` is always
-- false, because a deletion blocks no run.
WITH asked AS MATERIALIZED (
    SELECT
        run.id,
        run.status,
        run.status IN ('succeeded', 'dead', 'cancelled') AND run.status = ANY ($2::text[])
            AS granted
    FROM jobctl.job_runs AS run
    WHERE run.id = ANY ($1::bigint[])
    ORDER BY run.id
    FOR UPDATE
),
removed AS (
    DELETE FROM jobctl.job_runs AS run
    USING asked
    WHERE run.id = asked.id
        AND asked.granted
    RETURNING run.id, run.job_type
),
trail AS (
    INSERT INTO jobctl.job_events (action, run_id, job, host_user, reason, detail, operation)
    SELECT
        'prune' AS action,
        removed.id,
        removed.job_type,
        $3::text AS host_user,
        $4::text AS reason,
        'was ' || asked.status AS detail,
        $5::text AS operation
    FROM removed
    JOIN asked ON asked.id = removed.id
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
    written => (SELECT count(*) FROM removed)
)
