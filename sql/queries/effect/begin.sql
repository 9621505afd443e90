-- Records an effect, an action that must happen only once, before it happens. So the record also
-- shows an effect during which the program crashed.
-- $1  key    $2  run, NULL outside of a job    $3  attempt
-- One row: the time of the record. NULL: the key was recorded before.
WITH begun AS (
    INSERT INTO jobctl.job_effects AS effect (key, run_id, attempt)
    VALUES ($1::text, $2::bigint, $3::integer)
    ON CONFLICT DO NOTHING
    RETURNING effect.recorded_at
)
SELECT (SELECT begun.recorded_at FROM begun) AS recorded_at
