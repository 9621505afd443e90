-- Prepares the retry of cancelled runs that waited for others. A predecessor that met `any_end`
-- without success may be retried, too, so its row becomes due: decide_followers decides about it
-- again. Returns those of the runs that the retry must block, because a predecessor has not ended
-- as the rule asks. SECURITY DEFINER: operators can't write dependencies. Internal: no part of the
-- contract of the schema.
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
