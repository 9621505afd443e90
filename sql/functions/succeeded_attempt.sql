-- Returns the number of the last attempt of a run that succeeded, or NULL if none did. A run with
-- such an attempt counts as succeeded for the runs that wait for it. That stays so while `retry
-- --again` repeats it, and whatever the result of the repetition is. Internal: only jobctl calls
-- it.
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
