-- A claim without a run: fails if a trigger of the statement or a missing right rejects all claims.
UPDATE jobctl.job_runs
SET
    status = 'running',
    attempts = attempts + 1,
    locked_by = '',
    locked_until = now(),
    started_at = now(),
    updated_at = now()
WHERE false
