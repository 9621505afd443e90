-- Names the columns of a statement whose answer has no rows, by one row of NULLs. The caller puts
-- the statement in place of the text in parentheses.
SELECT listed.*
FROM (VALUES (true)) AS one
LEFT JOIN (TABLE jobctl.job_runs) AS listed ON false
