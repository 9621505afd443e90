-- The columns of a statement, for an answer without rows: one row of NULLs. The statement replaces
-- the one in parentheses.
SELECT listed.*
FROM (VALUES (true)) AS one
LEFT JOIN (TABLE jobctl.job_runs) AS listed ON false
