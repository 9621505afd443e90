-- Records that a tick found an older database than before. Does nothing if that is recorded and not
-- accepted.
-- $1  worker
INSERT INTO jobctl.job_events (action, detail)
SELECT 'restore', 'worker ' || $1::text
WHERE NOT EXISTS (SELECT FROM jobctl.unaccepted_restores)
