-- Accepts a restored database: ticks that remember a newer one start runs again.
-- $1  host user    $2  reason
INSERT INTO jobctl.job_events (action, host_user, reason)
VALUES ('accept-restore', $1::text, $2::text)
