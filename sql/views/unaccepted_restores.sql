-- The restore of a backup that a tick has noticed and no operator has accepted; at most one row.
CREATE OR REPLACE VIEW jobctl.unaccepted_restores AS
SELECT recorded_at, detail
FROM jobctl.job_events
WHERE action = 'restore'
    -- The newest of these events is a restore, so it was not accepted.
    AND id = (
        SELECT max(id)
        FROM jobctl.job_events
        WHERE action IN ('restore', 'accept-restore')
    );
