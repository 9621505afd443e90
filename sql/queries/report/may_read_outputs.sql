-- Fails if the role may not read outputs. Then no report with outputs is written. Reads no row.
SELECT attempt.output
FROM jobctl.job_attempts AS attempt
LIMIT 0
