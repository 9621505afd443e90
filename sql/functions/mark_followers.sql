-- Marks the rows of job_dependencies for the runs that wait for these runs as `due`, because these
-- runs have ended or were deleted. decide_followers then decides about the runs that wait. Returns
-- those of `runs` for which another run waits. Internal: only jobctl calls it.
CREATE OR REPLACE FUNCTION jobctl.mark_followers(runs bigint[])
RETURNS bigint[]
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    awaited bigint[];
BEGIN
    WITH marked AS (
        UPDATE jobctl.job_dependencies AS dependency
        SET state = 'due'
        WHERE dependency.after_id = ANY (runs)
            AND dependency.state IN ('open', 'stuck')
        RETURNING dependency.after_id
    )
    SELECT coalesce(array_agg(DISTINCT marked.after_id), '{}') INTO awaited FROM marked;
    RETURN awaited;
END
$$;
