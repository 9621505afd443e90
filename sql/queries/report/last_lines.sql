-- The last line of each attempt's output that is not blank.
-- $1  ids    $2  attempts
-- A row per attempt, in their order; NULL: no output is stored.
SELECT (regexp_match(right(attempt.output, 1000), '([^\r\n]*\S)\s*$'))[1] AS last_line
FROM unnest($1::bigint[], $2::integer[]) WITH ORDINALITY AS wanted (run_id, attempt, place)
LEFT JOIN jobctl.job_attempts AS attempt
    ON attempt.run_id = wanted.run_id
    AND attempt.attempt = wanted.attempt
ORDER BY wanted.place
