-- Fails if the role may not read outputs, so that `report` fails before it writes a report with
-- outputs. Reads no row.
SELECT attempt.output
FROM jobctl.job_attempts AS attempt
LIMIT 0
