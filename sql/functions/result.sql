-- Returns for one run the row that `results` returns for several.
CREATE OR REPLACE FUNCTION jobctl.result(
    run bigint,
    caller jobctl.caller DEFAULT CURRENT_USER
)
RETURNS TABLE (
    id bigint,
    status text,
    finished_at timestamptz,
    output text,
    output_truncated boolean,
    result jsonb
)
LANGUAGE sql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT * FROM jobctl.results(ARRAY[run], caller)
$$;
