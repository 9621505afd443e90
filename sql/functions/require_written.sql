-- Raises an error if a statement wrote fewer rows than it had locked or chosen: then a trigger of
-- another program skipped some, because it returned NULL. The command or tick ends with this error
-- and its transaction changes nothing. This is the only place that finds skipped rows. Returns
-- true. Internal: no part of the contract of the schema.
CREATE OR REPLACE FUNCTION jobctl.require_written(table_name text, chosen bigint, written bigint)
RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF written < chosen THEN
        RAISE EXCEPTION 'a trigger of jobctl.% skips the row', table_name;
    END IF;
    RETURN true;
END
$$;
