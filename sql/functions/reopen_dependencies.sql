-- Prepares the retry of cancelled runs that waited for other runs, the predecessors. Returns those
-- runs that the retry must block, because a predecessor has not ended as the rule asks. Internal:
-- only jobctl calls it.
--
-- A predecessor that ended without success met `any_end`, but it may be retried, too. So its row
-- becomes due, and decide_followers decides about it again.
--
-- SECURITY DEFINER: operators may not write dependencies.
CREATE OR REPLACE FUNCTION jobctl.reopen_dependencies(runs bigint[])
RETURNS bigint[]
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $$
BEGIN
    UPDATE jobctl.job_dependencies AS dependency
    SET state = 'due'
    FROM jobctl.job_runs AS predecessor
    JOIN jobctl.job_runs AS run
        ON run.id = ANY (runs)
        AND run.status = 'cancelled'
    WHERE dependency.run_id = run.id
        AND dependency.after_id = predecessor.id
        AND dependency.state = 'met'
        AND dependency.rule = 'any_end'
        -- If the predecessor succeeded once, the row stays met.
        AND jobctl.succeeded_attempt(predecessor.id) IS NULL;
    RETURN ARRAY(
        SELECT DISTINCT dependency.run_id
        FROM jobctl.job_dependencies AS dependency
        WHERE dependency.run_id = ANY (runs)
            AND dependency.state <> 'met'
    );
END
$$;
