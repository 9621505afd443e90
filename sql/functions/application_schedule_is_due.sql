-- Returns whether a schedule that an application made is due. Schedules of paused and disabled jobs
-- do not count, as in due_schedules.sql. Internal: only jobctl calls it.
--
-- A function of PL/pgSQL, so that PostgreSQL plans this statement only when it is called: wake.sql
-- calls it only if there are such schedules, and planning it would take a tenth of an empty tick.
CREATE OR REPLACE FUNCTION jobctl.application_schedule_is_due()
RETURNS boolean
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM jobctl.scheduling_jobs AS job
        CROSS JOIN LATERAL (
            SELECT schedule.due_at
            FROM jobctl.job_schedules AS schedule
            WHERE schedule.definition_id = job.id
            ORDER BY schedule.due_at
            LIMIT 1
        ) AS first
        WHERE first.due_at <= now()
    );
END
$$;
