-- The answers that a request for runs would get; nothing changes.
-- $1  ids    $2  from: statuses that a run may have
-- A row per existing id: its status, and whether the request would be granted.
SELECT
    run.id,
    run.status,
    run.status = ANY ($2::text[]) AS granted
FROM jobctl.job_runs AS run
WHERE run.id = ANY ($1::bigint[])
