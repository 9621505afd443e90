-- Returns a text as JSON. Returns NULL if it is not JSON, as the output of a run that ended before
-- its definition got `result = "json"`. Internal: only jobctl calls it.
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
