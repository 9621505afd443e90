-- Returns whether this attempt of a run is running now. Internal: only jobctl calls it.
CREATE OR REPLACE FUNCTION jobctl.is_running(run_id bigint, attempt integer)
RETURNS boolean
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (
        SELECT FROM jobctl.job_runs AS run
        WHERE run.id = is_running.run_id
            AND run.attempts = is_running.attempt
            AND run.status = 'running'
    )
$$;
