-- Notes which of these runs other jobs follow: inserts rows into job_predecessors, which
-- enqueue_following reads. Returns the noted runs. Internal: only jobctl calls it.
--
-- A new run with a scheduled time is noted at once, and a run without one when it has ended as
-- `when` asks. The function only inserts rows, so it waits for no other transaction.
CREATE OR REPLACE FUNCTION jobctl.note_predecessors(runs bigint[])
RETURNS bigint[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    noted_runs bigint[];
BEGIN
    WITH inserted AS (
        INSERT INTO jobctl.job_predecessors AS new (
            definition_id,
            scheduled_for,
            job_type,
            run_id
        )
        SELECT following.id, planned.scheduled_for, run.job_type, run.id
        FROM jobctl.job_runs AS run
        -- A run of an application's schedule counts as one without a scheduled time, because its
        -- times are not those of the other jobs.
        CROSS JOIN LATERAL (
            SELECT CASE WHEN run.schedule IS NULL THEN run.scheduled_for END AS scheduled_for
        ) AS planned
        JOIN jobctl.job_definitions AS following ON run.job_type = ANY (following.after)
        WHERE run.id = ANY (runs)
            -- The condition of the index job_definitions_following.
            AND following.after IS NOT NULL
            AND CASE
                WHEN planned.scheduled_for IS NOT NULL THEN run.finished_at IS NULL
                WHEN following.when = 'any_end' THEN run.finished_at IS NOT NULL
                ELSE run.status = 'succeeded'
            END
        RETURNING new.run_id
    )
    SELECT coalesce(array_agg(DISTINCT inserted.run_id), '{}') INTO noted_runs FROM inserted;
    RETURN noted_runs;
END
$$;
