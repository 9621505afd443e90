-- Returns the last attempt of a run that succeeded; NULL if none did. A run with such an attempt
-- counts as succeeded for the runs that wait for it, also while `retry --again` repeats it, and
-- however that ends. Internal: no part of the contract of the schema.
CREATE OR REPLACE FUNCTION jobctl.succeeded_attempt(run bigint)
RETURNS integer
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT max(attempt.attempt)
    FROM jobctl.job_attempts AS attempt
    WHERE attempt.run_id = succeeded_attempt.run
        AND attempt.outcome = 'succeeded'
$$;
