-- Returns the state of each of these runs, for `jobctl wait` and programs that wait. A role that
-- may read the status of runs gets all runs. Another role gets only runs that its login, or a role
-- of which it is a member, enqueued.
--
--   exit_code, signal    of the last attempt
--   stuck                the run is blocked and can't start, because of a stuck_predecessor or
--                        because the rows that say for which runs it waits are lost
--
-- SECURITY DEFINER: an enqueuer may not read the tables. It gets no error, output or payload here,
-- and no id of another run.
CREATE OR REPLACE FUNCTION jobctl.run_states(
    runs bigint[],
    caller jobctl.caller DEFAULT CURRENT_USER
)
RETURNS TABLE (
    id bigint,
    job text,
    status text,
    attempts integer,
    error_type text,
    exit_code integer,
    signal integer,
    stuck boolean
)
LANGUAGE sql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $$
    SELECT
        run.id,
        run.job_type,
        run.status,
        run.attempts,
        run.error_type,
        attempt.exit_code,
        attempt.signal,
        run.status = 'blocked'
            AND (
                stuck.id IS NOT NULL
                -- The rows that say for which runs this run waits are lost.
                OR NOT EXISTS (
                    SELECT FROM jobctl.job_dependencies AS dependency
                    WHERE dependency.run_id = run.id
                        AND dependency.state <> 'met'
                )
            )
    FROM jobctl.job_runs AS run
    LEFT JOIN jobctl.job_attempts AS attempt
        ON attempt.run_id = run.id
        AND attempt.attempt = run.attempts
    LEFT JOIN jobctl.stuck_predecessor(ARRAY(
        SELECT blocked.id
        FROM jobctl.job_runs AS blocked
        WHERE blocked.id = ANY (runs)
            AND blocked.status = 'blocked'
    )) AS stuck ON stuck.run_id = run.id
    -- An array makes the planner use the index: it expects a thousand rows from a function.
    WHERE run.id = ANY (ARRAY(
        SELECT visible.id
        FROM jobctl.visible_runs(
            runs,
            caller,
            has_column_privilege(caller, 'jobctl.job_runs', 'status', 'SELECT')
        ) AS visible
    ))
$$;
