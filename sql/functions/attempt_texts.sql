-- Returns the error of an attempt, at most 10,000 characters, and the last line of its output. Both
-- are NULL for a role that may not read outputs, such as a viewer. Internal: only jobctl calls it.
CREATE OR REPLACE FUNCTION jobctl.attempt_texts(
    run bigint,
    attempt integer,
    OUT error text,
    OUT last_line text
)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF has_column_privilege('jobctl.job_attempts', 'output', 'SELECT') THEN
        SELECT left(ended.error, 10000), jobctl.last_line(ended.output)
        INTO error, last_line
        FROM jobctl.job_attempts AS ended
        WHERE ended.run_id = attempt_texts.run
            AND ended.attempt = attempt_texts.attempt;
    END IF;
END
$$;
