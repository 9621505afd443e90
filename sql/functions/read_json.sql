-- Returns a text as JSON. Returns NULL if it is not JSON, for example the output of a run that
-- ended before its definition got `result = "json"`. Internal: no part of the contract of the
-- schema.
CREATE OR REPLACE FUNCTION jobctl.read_json(text text)
RETURNS jsonb
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN text::jsonb;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN NULL;
END
$$;
