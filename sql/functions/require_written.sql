-- Returns true if a statement wrote all rows of a table that it chose. Otherwise, raises an error:
-- the statement had locked its rows, so only a trigger of another program can have skipped one, by
-- returning NULL. The command or tick ends with this error, and its transaction changes nothing.
-- Only this function finds skipped rows. Internal: only jobctl calls it.
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
