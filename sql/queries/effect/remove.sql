-- Removes the record of an open effect that did not happen.
-- $1  key    $2  recorded, the recorded_at of the caller's record; NULL: any
-- Zero rows: the effect is not open, or another caller recorded it again meanwhile.
DELETE FROM jobctl.job_effects AS effect
WHERE effect.key = $1::text
    AND effect.completed_at IS NULL
    AND effect.recorded_at = coalesce($2::timestamptz, effect.recorded_at)
