-- Tests whether the database accepts claims at all: performs the UPDATE of a claim on no row. Fails
-- if a missing privilege or a statement-level trigger rejects every claim. If it succeeds, a claim
-- can fail only because of its runs.
UPDATE jobctl.job_runs
SET
    status = 'running',
    attempts = attempts + 1,
    locked_by = '',
    locked_until = now(),
    started_at = now(),
    updated_at = now()
WHERE false
