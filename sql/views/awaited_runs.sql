-- The predecessors of unfinished runs: a row for each run that an unfinished run waits for or has
-- waited for. `prune` keeps a predecessor, because the unfinished run may read its results.
-- `is_stuck`: the unfinished run is blocked, and this predecessor has ended without the success for
-- which it waits.
CREATE OR REPLACE VIEW jobctl.awaited_runs AS
SELECT
    dependency.after_id AS id,
    dependency.state,
    follower.id AS follower_id,
    follower.job_type AS follower_job,
    coalesce(predecessor.status, 'deleted') AS status,
    -- A tick sets `stuck` if the predecessor did not end as the rule asks. Until then the row is
    -- `due`, and by other rules than `success`, the follower will start or be cancelled. A
    -- predecessor that was retried after its end may still succeed, so its status counts, too.
    (dependency.state = 'stuck' OR (dependency.state = 'due' AND dependency.rule = 'success'))
        AND follower.status = 'blocked'
        AND coalesce(predecessor.status, 'deleted') IN ('dead', 'cancelled', 'deleted') AS is_stuck
FROM jobctl.job_dependencies AS dependency
JOIN jobctl.job_runs AS follower
    ON follower.id = dependency.run_id
    AND follower.finished_at IS NULL
LEFT JOIN jobctl.job_runs AS predecessor ON predecessor.id = dependency.after_id;
