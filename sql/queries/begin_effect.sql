-- Records that an effect is about to happen, so that a crash can't leave it unnoticed.
-- $1  key    $2  run id, NULL outside of a job    $3  attempt
-- Returns one row: when it was recorded; NULL: it was before, and is completed or left open.
WITH begun AS (
    INSERT INTO jobctl.job_effects AS effect (key, run_id, attempt)
    VALUES ($1::text, $2::bigint, $3::integer)
    ON CONFLICT DO NOTHING
    RETURNING effect.recorded_at
)
SELECT (SELECT begun.recorded_at FROM begun) AS recorded_at
