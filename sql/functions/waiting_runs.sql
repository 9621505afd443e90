-- Returns the waiting runs of a definition, due or not, as max_waiting counts them. Returns at most
-- `most` of them; NULL: all. Internal: only jobctl calls it.
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
        -- The conditions and the order of the index job_runs_waiting_of_job, so that the planner
        -- uses this index.
        WHERE run.job_type = job
            AND run.job_type NOT IN ('shell', 'http')
            AND run.status IN ('queued', 'failed')
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
