-- Counts dropped runs of a job in the figures.
CREATE OR REPLACE FUNCTION jobctl.count_dropped(job text, number integer)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM jobctl.count_attempts(
        array_fill(job, ARRAY[number]),
        -- No run ended that could be the job's last one.
        array_fill('dropped'::text, ARRAY[number]),
        array_fill('dropped'::text, ARRAY[number]),
        array_fill(NULL::float8, ARRAY[number]),
        array_fill(NULL::float8, ARRAY[number])
    );
END
$$;
