-- Records that a tick found an older database than before. Does nothing if that is recorded and not
-- accepted.
-- $1  worker
INSERT INTO jobctl.job_events (action, detail)
SELECT 'restore', left('worker ' || $1::text, 1000)
WHERE NOT EXISTS (SELECT FROM jobctl.unaccepted_restores)
