-- Fails for a role that may not read outputs. No row.
SELECT attempt.output
FROM jobctl.job_attempts AS attempt
LIMIT 0
