-- Inserts rows of job_predecessors for jobs that follow these runs, see enqueue_following: new runs
-- with a scheduled time, and runs without one that have ended as `when` asks. Returns the inserted
-- runs. It only inserts rows, so it waits for no other transaction. Internal: no part of the
-- contract of the schema.
CREATE OR REPLACE FUNCTION jobctl.note_predecessors(runs bigint[])
RETURNS bigint[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    noted bigint[];
BEGIN
    WITH noted AS (
        INSERT INTO jobctl.job_predecessors AS new (
            definition_id,
            scheduled_for,
            job_type,
            run_id
        )
        SELECT following.id, planned.scheduled_for, run.job_type, run.id
        FROM jobctl.job_runs AS run
        -- Schedules of applications have their own times.
        CROSS JOIN LATERAL (
            SELECT CASE WHEN run.schedule IS NULL THEN run.scheduled_for END AS scheduled_for
        ) AS planned
        JOIN jobctl.job_definitions AS following ON run.job_type = ANY (following.after)
        WHERE run.id = ANY (runs)
            AND following.after IS NOT NULL
            AND CASE
                WHEN planned.scheduled_for IS NOT NULL THEN run.finished_at IS NULL
                WHEN following.when = 'any_end' THEN run.finished_at IS NOT NULL
                ELSE run.status = 'succeeded'
            END
        RETURNING new.run_id
    )
    SELECT coalesce(array_agg(DISTINCT noted.run_id), '{}') INTO noted FROM noted;
    RETURN noted;
END
$$;
