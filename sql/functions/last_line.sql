-- Returns the last line that is not blank within the last 1000 characters of an output; NULL
-- without one. Internal: no part of the contract of the schema.
CREATE OR REPLACE FUNCTION jobctl.last_line(output text)
RETURNS text
LANGUAGE sql
IMMUTABLE
AS $$
    SELECT (regexp_match(right(output, 1000), '([^\r\n]*\S)\s*$'))[1]
$$;
