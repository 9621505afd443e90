-- Lists the last hundred events of a run or of a definition, the oldest first.
-- $1  run    $2  definition; one of the two is NULL
SELECT
    latest.recorded_at,
    latest.action,
    latest.recorded_by,
    latest.host_user,
    latest.reason,
    latest.detail
FROM (
    SELECT event.*
    FROM jobctl.job_events AS event
    WHERE event.run_id = $1::bigint
        OR event.run_id IS NULL AND event.job = $2::text
    ORDER BY event.id DESC
    LIMIT 100
) AS latest
ORDER BY latest.id
