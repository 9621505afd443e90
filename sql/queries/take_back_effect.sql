-- Takes back an open effect, which then has not happened.
-- $1  key
-- Zero rows: it is not open.
DELETE FROM jobctl.job_effects AS effect
WHERE effect.key = $1::text
    AND effect.completed_at IS NULL
RETURNING effect.key
