-- succeeded, dead or cancelled -> deleted. A trigger deletes the history.
-- $1  run ids    $2  statuses that a run may have
-- A row per existing id: its status, and whether it was deleted.
WITH asked AS MATERIALIZED (
    SELECT run.id, run.status
    FROM jobctl.job_runs AS run
    WHERE run.id = ANY ($1::bigint[])
    ORDER BY run.id
    FOR UPDATE
),
removed AS (
    DELETE FROM jobctl.job_runs AS run
    USING asked
    WHERE run.id = asked.id
        AND asked.status IN ('succeeded', 'dead', 'cancelled')
        AND asked.status = ANY ($2::text[])
    RETURNING run.id
)
SELECT
    asked.id,
    asked.status,
    removed.id IS NOT NULL AS granted
FROM asked
LEFT JOIN removed ON removed.id = asked.id
