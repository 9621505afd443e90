-- Takes back an open effect, which then has not happened.
-- $1  key    $2  when its owner recorded it; NULL: whoever did
-- Zero rows: it is not open, or not its owner's any more.
DELETE FROM jobctl.job_effects AS effect
WHERE effect.key = $1::text
    AND effect.completed_at IS NULL
    AND effect.recorded_at = coalesce($2::timestamptz, effect.recorded_at)
RETURNING effect.key
