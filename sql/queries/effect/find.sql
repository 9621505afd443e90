-- Reads a recorded effect. A separate statement, because the statement that conflicted with the
-- record can't see it.
-- $1  key
-- Zero rows: no effect has this key, or it was removed meanwhile.
SELECT
    effect.recorded_at,
    jobctl.is_own_effect(current_user, effect.recorded_by) AS is_own,
    effect.completed_at IS NOT NULL AS completed,
    effect.result
FROM jobctl.job_effects AS effect
WHERE effect.key = $1::text
