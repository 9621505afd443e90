-- Reads a recorded effect. A separate statement, because begin.sql can't see the record with which
-- it conflicted.
-- $1  key    $2  run, NULL outside of a job    $3  attempt
-- Zero rows: no effect has this key, or it was removed meanwhile. `used_by`: the run whose attempt
-- recorded the effect, if that attempt is still running and is not the caller.
SELECT
    effect.recorded_at,
    jobctl.is_own_effect(current_user, effect.recorded_by) AS is_own,
    effect.completed_at IS NOT NULL AS completed,
    CASE
        WHEN (effect.run_id, effect.attempt) IS DISTINCT FROM ($2::bigint, $3::integer)
            AND jobctl.is_running(effect.run_id, effect.attempt)
            THEN effect.run_id
    END AS used_by,
    effect.result
FROM jobctl.job_effects AS effect
WHERE effect.key = $1::text
