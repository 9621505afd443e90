-- Filters the given attempts, and keeps their order: returns the attempts whose error or last line
-- of output contains a text. Compares in lower case, as list_ids.sql explains.
-- $1  run_ids    $2  attempts, arrays of equal length
-- $3  error: the text    $4  limit; NULL for all
SELECT given.run_id, given.attempt
FROM unnest($1::bigint[], $2::integer[]) WITH ORDINALITY AS given (run_id, attempt, place)
JOIN jobctl.job_attempts AS attempt
    ON attempt.run_id = given.run_id
    AND attempt.attempt = given.attempt
CROSS JOIN LATERAL (
    SELECT concat_ws(E'\n', attempt.error, jobctl.last_line(attempt.output)) AS texts
) AS searched
WHERE strpos(
        lower(lower(searched.texts COLLATE "C") COLLATE "default"),
        lower(lower($3::text COLLATE "C") COLLATE "default")
    ) > 0
ORDER BY given.place
LIMIT $4::bigint
