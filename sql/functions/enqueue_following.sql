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
--   - with a scheduled time: all rows of the time, once one of them is a week old. If some job has
--     no row for the time by then, it was never fired, and the job that follows gets no run
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
    -- The rows of job_predecessors that this call has locked.
    locked_ids uuid[];
    enqueued bigint[];
    has_deleted boolean;
BEGIN
    locked_ids := ARRAY(
        SELECT noted.id
        FROM jobctl.job_predecessors AS noted
        JOIN (
            -- Here and below, -infinity replaces NULL, which `=` would not match.
            SELECT DISTINCT given.definition_id, coalesce(given.time, '-infinity') AS time
            FROM unnest(definitions, times) AS given (definition_id, time)
        ) AS asked
            ON asked.definition_id = noted.definition_id
            AND asked.time = coalesce(noted.scheduled_for, '-infinity')
        ORDER BY noted.scheduled_for, noted.definition_id, noted.run_id
        LIMIT 10000
        FOR UPDATE OF noted SKIP LOCKED
    );
    WITH locked AS MATERIALIZED (
        SELECT
            noted.*,
            max(noted.run_id) OVER (
                PARTITION BY noted.definition_id, noted.scheduled_for, noted.job_type
            ) AS newest_run
        FROM unnest(locked_ids) AS chosen (id)
        JOIN jobctl.job_predecessors AS noted ON noted.id = chosen.id
    ),
    -- One row for each job that follows and each of its times.
    followings AS MATERIALIZED (
        SELECT
            grouped.definition_id,
            grouped.scheduled_for,
            grouped.is_old,
            following.after IS NULL AS follows_no_longer,
            -- Each job in `after` has a row for this time.
            coalesce(following.after <@ grouped.jobs, false)
            -- This call must have locked all rows of a scheduled time. Without a scheduled time, a
            -- row that another session has locked can count for the next run instead.
            AND (
                grouped.scheduled_for IS NULL
                OR grouped.rows = (
                    SELECT count(*)
                    FROM jobctl.job_predecessors AS noted
                    WHERE noted.definition_id = grouped.definition_id
                        AND noted.scheduled_for = grouped.scheduled_for
                )
            ) AS is_complete
        FROM (
            SELECT
                locked.definition_id,
                locked.scheduled_for,
                array_agg(DISTINCT locked.job_type) AS jobs,
                count(*) AS rows,
                locked.scheduled_for IS NOT NULL
                    AND min(locked.noted_at) <= now() - interval '7 days' AS is_old
            FROM locked
            GROUP BY locked.definition_id, locked.scheduled_for
        ) AS grouped
        LEFT JOIN jobctl.job_definitions AS following
            ON following.id = grouped.definition_id
            AND following.enabled
            AND following.paused_at IS NULL
    ),
    judged AS MATERIALIZED (
        SELECT
            locked.id,
            -- For a scheduled time, follow every run, because a job may have one for each worker.
            -- Otherwise, follow the newest.
            locked.scheduled_for IS NOT NULL OR locked.run_id = locked.newest_run AS is_followed,
            -- The row was used, or will never be used.
            followings.is_complete
                OR followings.follows_no_longer
                OR followings.is_old
                OR locked.scheduled_for IS NULL AND locked.run_id < locked.newest_run
                AS is_to_delete
        FROM locked
        JOIN followings
            ON followings.definition_id = locked.definition_id
            AND coalesce(followings.scheduled_for, '-infinity')
                = coalesce(locked.scheduled_for, '-infinity')
    ),
    kept AS (
        UPDATE jobctl.job_predecessors AS noted
        SET is_new = false
        FROM judged
        WHERE noted.id = judged.id
            AND noted.is_new
            AND NOT judged.is_to_delete
    ),
    deleted AS (
        DELETE FROM jobctl.job_predecessors AS noted
        USING judged
        WHERE noted.id = judged.id
            AND judged.is_to_delete
        RETURNING noted.*, judged.is_followed
    ),
    predecessors AS MATERIALIZED (
        -- A run that was retried may have ended twice, and so have two rows.
        SELECT DISTINCT
            deleted.definition_id,
            deleted.scheduled_for,
            deleted.run_id,
            run.traceparent
        FROM deleted
        JOIN jobctl.job_definitions AS following ON following.id = deleted.definition_id
        LEFT JOIN jobctl.job_runs AS run ON run.id = deleted.run_id
        WHERE deleted.is_followed
            AND deleted.job_type = ANY (following.after)
            -- Leave out deleted runs without a scheduled time: they had ended as `when` asks.
            -- Deleted runs of a scheduled time stay in, because nothing says how they ended.
            AND (run.id IS NOT NULL OR deleted.scheduled_for IS NOT NULL)
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
            coalesce(followings.scheduled_for, now()),
            CASE WHEN awaited.runs > 0 THEN 'blocked' ELSE 'queued' END,
            following.max_attempts,
            following.backoff,
            followings.scheduled_for,
            coalesce(followings.scheduled_for, now())
                + extract(epoch FROM following.expires) * interval '1 second',
            awaited.traceparent,
            -- The schema's owner, because an application must not own the run that follows its run.
            CURRENT_USER
        FROM followings
        JOIN jobctl.job_definitions AS following ON following.id = followings.definition_id
        CROSS JOIN LATERAL (
            SELECT
                count(*) AS runs,
                (
                    array_agg(predecessor.traceparent ORDER BY predecessor.run_id)
                        FILTER (WHERE predecessor.traceparent IS NOT NULL)
                )[1] AS traceparent
            FROM predecessors AS predecessor
            WHERE predecessor.definition_id = followings.definition_id
                AND predecessor.scheduled_for IS NOT DISTINCT FROM followings.scheduled_for
        ) AS awaited
        WHERE followings.is_complete
        ORDER BY followings.scheduled_for, following.id
        -- Only a conflict in the index job_runs_fire, whose columns these are: the time already has
        -- its run. A conflict of ids, if the sequence is behind its table, still raises an error.
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
        EXISTS (SELECT FROM deleted)
    INTO enqueued, has_deleted;
    -- Other jobs may follow these new runs.
    PERFORM jobctl.note_predecessors(enqueued);
    RETURN has_deleted;
END
$$;
