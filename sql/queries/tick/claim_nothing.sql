-- Claims no run: fails if a trigger of the statement, or a missing right, rejects each claim. If it
-- succeeds, a claim can fail only because of the runs that it takes.
UPDATE jobctl.job_runs
SET
    status = 'running',
    attempts = attempts + 1,
    locked_by = '',
    locked_until = now(),
    started_at = now(),
    updated_at = now()
WHERE false
