-- Fails if the role may not read outputs, so that no report with them is written. Reads no row.
SELECT attempt.output
FROM jobctl.job_attempts AS attempt
LIMIT 0
