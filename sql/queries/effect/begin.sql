-- Records an effect before it happens. An effect is an action that must happen only once. If the
-- program crashes during the effect, the record stays open.
-- $1  key    $2  run, NULL outside of a job    $3  attempt
-- Always one row: the time of the record. NULL: the key was recorded before.
WITH begun AS (
    INSERT INTO jobctl.job_effects AS effect (key, run_id, attempt)
    VALUES ($1::text, $2::bigint, $3::integer)
    ON CONFLICT DO NOTHING
    RETURNING effect.recorded_at
)
SELECT (SELECT begun.recorded_at FROM begun) AS recorded_at
