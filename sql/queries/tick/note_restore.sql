-- Records that a tick found an older database than its host remembers: a backup was restored. Does
-- nothing if there is such a record and no operator has accepted it.
-- $1  worker
INSERT INTO jobctl.job_events (action, detail)
SELECT 'restore', 'worker ' || $1::text
WHERE NOT EXISTS (SELECT FROM jobctl.unaccepted_restores)
