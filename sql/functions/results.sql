-- Returns what runs have printed in their last attempt: of runs that the login or a role of the
-- caller enqueued, and of all runs if the caller may read outputs. `result` is what a succeeded
-- run wrote to stdout, if its definition says that this is JSON. SECURITY DEFINER: an enqueuer
-- reads no table.
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
        CASE
            WHEN run.status = 'succeeded' AND definition.result = 'json'
                THEN jobctl.read_json(split_part(attempt.output, E'--- stderr ---\n', 1))
        END
    FROM jobctl.job_runs AS run
    LEFT JOIN jobctl.job_attempts AS attempt
        ON attempt.run_id = run.id
        AND attempt.attempt = run.attempts
    LEFT JOIN jobctl.job_definitions AS definition ON definition.name = run.job_type
    -- An array, because the planner would expect a thousand rows of a function.
    WHERE run.id = ANY (ARRAY(
        SELECT visible.id
        FROM jobctl.visible_runs(
            runs,
            caller,
            has_column_privilege(caller, 'jobctl.job_attempts', 'output', 'SELECT')
        ) AS visible
    ))
$$;
