-- The last line of an output that is not blank, of its last 1000 characters; NULL without one.
-- Internal: no part of the contract of the schema.
CREATE OR REPLACE FUNCTION jobctl.last_line(output text)
RETURNS text
LANGUAGE sql
IMMUTABLE
AS $$
    SELECT (regexp_match(right(output, 1000), '([^\r\n]*\S)\s*$'))[1]
$$;
