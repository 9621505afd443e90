-- Returns one row of NULLs with the columns of a statement, to learn their names if the statement
-- returned no row. The caller replaces the text in parentheses by the statement.
SELECT listed.*
FROM (VALUES (true)) AS one
LEFT JOIN (TABLE jobctl.job_runs) AS listed ON false
