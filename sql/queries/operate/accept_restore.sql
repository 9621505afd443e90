-- Accepts a restored database: ticks that remember a newer one start runs again.
-- $1  host_user    $2  reason
-- Returns whether a tick had noticed the restore.
WITH event AS (
    INSERT INTO jobctl.job_events (action, host_user, reason)
    VALUES ('accept-restore', $1::text, $2::text)
)
SELECT EXISTS (SELECT FROM jobctl.unaccepted_restores) AS was_noticed
