-- Marks an effect as completed. A completed effect without a result can get one.
-- $1  key    $2  recorded, the recorded_at of the caller's record; NULL: any
-- $3  result: output of the command, or NULL
-- Zero rows: no open effect has this key, or another caller recorded it again meanwhile.
-- If the answer to a call is lost, the caller calls again. So with `recorded`, a second call
-- succeeds, too.
UPDATE jobctl.job_effects AS effect
SET
    completed_at = coalesce(effect.completed_at, now()),
    result = coalesce(effect.result, $3::text)
WHERE effect.key = $1::text
    AND CASE
        WHEN $2::timestamptz IS NULL
            THEN effect.completed_at IS NULL
                OR (effect.result IS NULL AND $3::text IS NOT NULL)
        ELSE effect.recorded_at = $2::timestamptz
    END
