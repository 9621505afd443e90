-- Open -> completed.
-- $1  key
-- Zero rows: it is not open.
UPDATE jobctl.job_effects AS effect
SET completed_at = now()
WHERE effect.key = $1::text
    AND effect.completed_at IS NULL
RETURNING effect.key
