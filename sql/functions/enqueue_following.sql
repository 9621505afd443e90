-- Enqueues runs of jobs that follow other jobs, which are the jobs with `after` in their
-- definitions. Reads job_predecessors, where each run that a job follows has a row. Returns whether
-- it deleted a row there. Internal: only jobctl calls it.
--
--   definitions    arrays of equal length: a job that follows others,
--   times          and a scheduled time; NULL stands for the runs without a scheduled time
--
-- A job gets a run for a time once every job in its `after` has a row for that time. For a
-- scheduled time, the new run waits for all these runs. Without a scheduled time, it waits for the
-- newest run of each job. It is blocked, and decide_followers decides about it as about any blocked
-- run.
--
-- Deletes the rows that it used, so that a job follows each run once. Also deletes rows without
-- use:
--   - rows of a definition that was deleted, disabled or paused, or has lost its `after`
--   - without a scheduled time: all rows of a job but the newest
--   - with a scheduled time: rows after a week, because some job was never fired for that time
--
-- If another session has locked a row of a scheduled time, the function enqueues nothing for that
-- time. The locked row stays new, so the next call tries again. A call reads at most 10,000 rows.
--
-- Reads definitions but locks none, so an application that has locked one delays nothing.
--
-- SECURITY DEFINER: a tick may not enqueue. Its arguments only choose which due times are handled
-- now.
CREATE OR REPLACE FUNCTION jobctl.enqueue_following(definitions bigint[], times timestamptz[])
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $$
DECLARE
    free uuid[];
    enqueued bigint[];
    has_changed boolean;
BEGIN
    free := ARRAY(
        SELECT noted.id
        FROM jobctl.job_predecessors AS noted
        JOIN (
            SELECT DISTINCT given.definition_id, coalesce(given.time, '-infinity') AS time
            FROM unnest(definitions, times) AS given (definition_id, time)
        ) AS asked
            ON asked.definition_id = noted.definition_id
            AND asked.time = coalesce(noted.scheduled_for, '-infinity')
        ORDER BY noted.scheduled_for, noted.definition_id, noted.run_id
        LIMIT 10000
        FOR UPDATE OF noted SKIP LOCKED
    );
    WITH found AS MATERIALIZED (
        SELECT
            noted.*,
            max(noted.run_id) OVER (
                PARTITION BY noted.definition_id, noted.scheduled_for, noted.job_type
            ) AS newest
        FROM unnest(free) AS free (id)
        JOIN jobctl.job_predecessors AS noted ON noted.id = free.id
    ),
    due AS MATERIALIZED (
        SELECT
            noted.definition_id,
            noted.scheduled_for,
            noted.is_old,
            following.after IS NULL AS is_over,
            coalesce(following.after <@ noted.jobs, false)
            -- All rows of a scheduled time must be free. Without a scheduled time, a locked row can
            -- count for the next run instead.
            AND (
                noted.scheduled_for IS NULL
                OR noted.rows = (
                    SELECT count(*)
                    FROM jobctl.job_predecessors AS other
                    WHERE other.definition_id = noted.definition_id
                        AND other.scheduled_for = noted.scheduled_for
                )
            ) AS is_complete
        FROM (
            SELECT
                found.definition_id,
                found.scheduled_for,
                array_agg(DISTINCT found.job_type) AS jobs,
                count(*) AS rows,
                found.scheduled_for IS NOT NULL
                    AND min(found.noted_at) <= now() - interval '7 days' AS is_old
            FROM found
            GROUP BY found.definition_id, found.scheduled_for
        ) AS noted
        LEFT JOIN jobctl.job_definitions AS following
            ON following.id = noted.definition_id
            AND following.enabled
            AND following.paused_at IS NULL
    ),
    seen AS MATERIALIZED (
        SELECT
            found.id,
            -- For a scheduled time, follow every run, because a job may have one for each worker.
            -- Otherwise, follow the newest.
            found.scheduled_for IS NOT NULL OR found.run_id = found.newest AS is_followed,
            due.is_complete
                OR due.is_over
                OR due.is_old
                OR found.scheduled_for IS NULL AND found.run_id < found.newest AS is_done
        FROM found
        JOIN due
            ON due.definition_id = found.definition_id
            AND coalesce(due.scheduled_for, '-infinity')
                = coalesce(found.scheduled_for, '-infinity')
    ),
    kept AS (
        UPDATE jobctl.job_predecessors AS noted
        SET is_new = false
        FROM seen
        WHERE noted.id = seen.id
            AND noted.is_new
            AND NOT seen.is_done
    ),
    noted AS (
        DELETE FROM jobctl.job_predecessors AS noted
        USING seen
        WHERE noted.id = seen.id
            AND seen.is_done
        RETURNING noted.*, seen.is_followed
    ),
    predecessors AS MATERIALIZED (
        -- A run that was retried may have ended twice, and so have two rows.
        SELECT DISTINCT
            noted.definition_id,
            noted.scheduled_for,
            noted.run_id,
            run.traceparent
        FROM noted
        JOIN jobctl.job_definitions AS following ON following.id = noted.definition_id
        LEFT JOIN jobctl.job_runs AS run ON run.id = noted.run_id
        WHERE noted.is_followed
            AND noted.job_type = ANY (following.after)
            -- Leave out deleted runs without a scheduled time: they had ended as `when` asks.
            -- Deleted runs of a scheduled time stay in, because nothing says how they ended.
            AND (run.id IS NOT NULL OR noted.scheduled_for IS NOT NULL)
    ),
    new AS (
        INSERT INTO jobctl.job_runs AS run (
            definition_id,
            job_type,
            payload,
            queue,
            priority,
            run_at,
            status,
            max_attempts,
            backoff,
            scheduled_for,
            expires_at,
            traceparent,
            enqueued_by
        )
        SELECT
            following.id,
            following.name,
            following.payload,
            following.queue,
            following.priority,
            coalesce(due.scheduled_for, now()),
            CASE WHEN awaited.runs > 0 THEN 'blocked' ELSE 'queued' END,
            following.max_attempts,
            following.backoff,
            due.scheduled_for,
            coalesce(due.scheduled_for, now())
                + extract(epoch FROM following.expires) * interval '1 second',
            awaited.traceparent,
            -- The schema's owner, because an application must not own the run that follows its run.
            CURRENT_USER
        FROM due
        JOIN jobctl.job_definitions AS following ON following.id = due.definition_id
        CROSS JOIN LATERAL (
            SELECT
                count(*) AS runs,
                (
                    array_agg(predecessor.traceparent ORDER BY predecessor.run_id)
                        FILTER (WHERE predecessor.traceparent IS NOT NULL)
                )[1] AS traceparent
            FROM predecessors AS predecessor
            WHERE predecessor.definition_id = due.definition_id
                AND predecessor.scheduled_for IS NOT DISTINCT FROM due.scheduled_for
        ) AS awaited
        WHERE due.is_complete
        ORDER BY due.scheduled_for, following.id
        -- The columns of the index job_runs_fire. Without them, a conflict of ids would drop runs
        -- in silence, if the sequence is behind its table.
        ON CONFLICT (definition_id, coalesce(schedule, ''), scheduled_for, coalesce(worker, ''))
            WHERE scheduled_for IS NOT NULL
            DO NOTHING
        RETURNING run.id, run.definition_id, run.scheduled_for
    ),
    edges AS (
        INSERT INTO jobctl.job_dependencies (run_id, after_id, rule, state)
        SELECT new.id, predecessor.run_id, following.when, 'due'
        FROM new
        JOIN jobctl.job_definitions AS following ON following.id = new.definition_id
        JOIN predecessors AS predecessor
            ON predecessor.definition_id = new.definition_id
            AND predecessor.scheduled_for IS NOT DISTINCT FROM new.scheduled_for
    )
    SELECT
        ARRAY(SELECT new.id FROM new),
        EXISTS (SELECT FROM noted)
    INTO enqueued, has_changed;
    PERFORM jobctl.note_predecessors(enqueued);
    RETURN has_changed;
END
$$;
