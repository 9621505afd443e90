-- Ended runs that blocked ones still wait for, and those whose followers a tick must decide about.
CREATE OR REPLACE VIEW jobctl.awaited_runs AS
SELECT
    waits.after_id AS id,
    waits.state,
    follower.id AS follower_id,
    follower.job_type AS follower_job
FROM jobctl.job_dependencies AS waits
JOIN jobctl.job_runs AS follower
    ON follower.id = waits.run_id
    AND follower.status = 'blocked'
WHERE waits.state IN ('stuck', 'due');
