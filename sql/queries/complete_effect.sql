-- Open -> completed.
-- $1  key    $2  when its owner recorded it; NULL: whoever did
-- Zero rows: it is not open, or not its owner's any more. An owner who was not heard may say it twice.
UPDATE jobctl.job_effects AS effect
SET completed_at = coalesce(effect.completed_at, now())
WHERE effect.key = $1::text
    AND CASE
        WHEN $2::timestamptz IS NULL THEN effect.completed_at IS NULL
        ELSE effect.recorded_at = $2::timestamptz
    END
RETURNING effect.key
