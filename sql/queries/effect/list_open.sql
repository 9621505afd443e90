-- Lists the open effects, which began and did not complete, the oldest first.
SELECT
    effect.key,
    effect.run_id,
    effect.attempt,
    effect.recorded_by,
    effect.recorded_at
FROM jobctl.job_effects AS effect
WHERE effect.completed_at IS NULL
ORDER BY effect.recorded_at, effect.key
