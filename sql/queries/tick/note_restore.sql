-- Records that a tick found an older database than before. Does nothing if that is recorded and not
-- accepted.
-- $1  worker
INSERT INTO jobctl.job_events (action, detail)
SELECT 'restore', left('worker ' || $1::text, 1000)
WHERE 'restore' IS DISTINCT FROM (
    SELECT event.action
    FROM jobctl.job_events AS event
    WHERE event.action IN ('restore', 'accept-restore')
    ORDER BY event.id DESC
    LIMIT 1
)
