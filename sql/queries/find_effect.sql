-- An effect that is recorded. A statement of its own: the one that failed to record it can't see it.
-- $1  key
-- Zero rows: it is not recorded, or was taken back meanwhile.
SELECT
    effect.recorded_at,
    jobctl.may_settle(current_user, effect.recorded_by) AS may_settle,
    effect.completed_at IS NOT NULL AS completed
FROM jobctl.job_effects AS effect
WHERE effect.key = $1::text
