-- Returns the last line of an output that is not blank, if it is within the last 1,000 characters.
-- Returns NULL if there is none. Internal: only jobctl calls it.
CREATE OR REPLACE FUNCTION jobctl.last_line(output text)
RETURNS text
LANGUAGE sql
IMMUTABLE
AS $$
    SELECT (regexp_match(right(output, 1000), '([^\r\n]*\S)\s*$'))[1]
$$;
