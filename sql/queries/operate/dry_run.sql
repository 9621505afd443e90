-- Returns the answers that a request for runs would get. Changes nothing.
-- $1  ids    $2  from: statuses that a run may have
-- A row per existing id: its status, whether the request would be granted, and whether a retry
-- would block the run until other runs have ended (`is_blocked`).
SELECT
    run.id,
    run.status,
    run.status = ANY ($2::text[]) AS granted,
    run.status = 'cancelled'
        AND EXISTS (
            SELECT FROM jobctl.job_dependencies AS dependency
            WHERE dependency.run_id = run.id
                AND dependency.state <> 'met'
        ) AS is_blocked
FROM jobctl.job_runs AS run
WHERE run.id = ANY ($1::bigint[])
