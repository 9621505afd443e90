-- Records that an effect is about to happen, so that a crash can't leave it unnoticed.
-- $1  key    $2  run id, NULL outside of a job    $3  attempt
-- Returns `begun`: false if it is recorded already; find_effect.sql says what became of it.
WITH begun AS (
    INSERT INTO jobctl.job_effects AS effect (key, run_id, attempt)
    VALUES ($1::text, $2::bigint, $3::integer)
    ON CONFLICT DO NOTHING
    RETURNING effect.key
)
SELECT EXISTS (SELECT FROM begun) AS begun
