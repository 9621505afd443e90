-- Runs that unfinished ones wait for or have waited for, which may read their results.
CREATE OR REPLACE VIEW jobctl.awaited_runs AS
SELECT
    waits.after_id AS id,
    waits.state,
    follower.id AS follower_id,
    follower.job_type AS follower_job,
    coalesce(before.status, 'deleted') AS status,
    -- Else it was retried since.
    (waits.state = 'stuck' OR (waits.state = 'due' AND waits.rule = 'success'))
        AND follower.status = 'blocked'
        AND coalesce(before.status, 'deleted') IN ('dead', 'cancelled', 'deleted') AS is_stuck
FROM jobctl.job_dependencies AS waits
JOIN jobctl.job_runs AS follower
    ON follower.id = waits.run_id
    AND follower.finished_at IS NULL
LEFT JOIN jobctl.job_runs AS before ON before.id = waits.after_id;
