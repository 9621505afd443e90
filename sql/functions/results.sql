-- Returns the output of the last attempt of each of these runs. A role that may read outputs gets
-- all runs. Another role gets only runs that its login, or a role of which it is a member,
-- enqueued.
--
--   result    the stdout of a run that succeeded, if its definition says that it prints JSON
--
-- SECURITY DEFINER: an enqueuer may not read the tables.
CREATE OR REPLACE FUNCTION jobctl.results(
    runs bigint[],
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
SET row_security = off
AS $$
    SELECT
        run.id,
        run.status,
        run.finished_at,
        attempt.output,
        coalesce(attempt.output_truncated, false),
        -- The output is stdout, followed by a line `--- stderr ---` and stderr if there is any.
        CASE
            WHEN run.status = 'succeeded' AND definition.result = 'json'
                THEN jobctl.read_json(split_part(attempt.output, E'--- stderr ---\n', 1))
        END
    FROM jobctl.job_runs AS run
    LEFT JOIN jobctl.job_attempts AS attempt
        ON attempt.run_id = run.id
        AND attempt.attempt = run.attempts
    LEFT JOIN jobctl.job_definitions AS definition ON definition.name = run.job_type
    -- An array makes the planner use the index: it expects a thousand rows from a function.
    WHERE run.id = ANY (ARRAY(
        SELECT visible.id
        FROM jobctl.visible_runs(
            runs,
            caller,
            has_column_privilege(caller, 'jobctl.job_attempts', 'output', 'SELECT')
        ) AS visible
    ))
$$;
