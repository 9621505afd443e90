-- Removes an open effect, which did not happen.
-- $1  key    $2  time of the owner's record; NULL: any record
-- Zero rows: the effect is not open, or has another record now.
DELETE FROM jobctl.job_effects AS effect
WHERE effect.key = $1::text
    AND effect.completed_at IS NULL
    AND effect.recorded_at = coalesce($2::timestamptz, effect.recorded_at)
