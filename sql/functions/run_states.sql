-- Returns the states of runs, for `jobctl wait` and programs that wait: of runs that the login or a
-- role of the caller enqueued, and of all runs if the caller may read their status. The exit
-- code and the signal are those of the last attempt. A blocked run is stuck if it has a
-- stuck_predecessor, or if nothing says for which run it waits. SECURITY DEFINER: an enqueuer reads
-- no table, and learns no error, output or payload here, and no id of another run.
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
                -- The rows that say what it waits for are lost.
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
    -- An array, because the planner would expect a thousand rows of a function.
    WHERE run.id = ANY (ARRAY(
        SELECT visible.id
        FROM jobctl.visible_runs(
            runs,
            caller,
            has_column_privilege(caller, 'jobctl.job_runs', 'status', 'SELECT')
        ) AS visible
    ))
$$;
