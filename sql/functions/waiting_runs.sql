-- Returns the runs of a definition that wait, due or not, as max_waiting counts them: at most this
-- many, or all for NULL. Internal: no part of the contract of the schema.
CREATE OR REPLACE FUNCTION jobctl.waiting_runs(job text, most integer)
RETURNS SETOF bigint
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $$
BEGIN
    RETURN QUERY
    (
        SELECT run.id
        FROM jobctl.job_runs AS run
        WHERE run.job_type = job
            AND run.job_type NOT IN ('shell', 'http')
            AND run.status IN ('queued', 'failed')
        -- The order of job_runs_waiting_of_job keeps the planner from other indexes.
        ORDER BY
            run.job_type,
            coalesce(run.share, ''),
            run.queue,
            run.priority,
            run.run_at,
            run.id
        LIMIT most
    )
    UNION ALL
    (
        SELECT run.id
        FROM jobctl.job_runs AS run
        WHERE run.job_type = job
            AND run.status = 'blocked'
        LIMIT most
    )
    LIMIT most;
END
$$;
