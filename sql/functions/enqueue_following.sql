-- Enqueues jobs that follow others, each at most once per time, if every job in their `after` has a
-- run for that time, see job_predecessors. All its runs of a scheduled time count; without one, the
-- newest does. The new run is blocked, and decide_followers decides about it as about any other.
--
-- A job follows each run once, because this function deletes the rows of job_predecessors. It
-- leaves out a scheduled time if another session has locked one of its rows, which stay new. It
-- also deletes the rows of definitions that follow nothing now, all but the newest row of a job,
-- and those of a scheduled time after a week, because then some job was not fired for it. A call
-- looks at ten thousand rows.
--
-- Reads definitions and locks none, so an application that has locked one delays nothing.
--
-- SECURITY DEFINER: a tick may not enqueue. It chooses only which of the due times to handle now.
-- Returns whether a row was deleted. Internal: no part of the contract of the schema.
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
            -- Without a scheduled time, other rows stay for the next run.
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
            -- Of a scheduled time, a job may have a run for each worker.
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
        -- A run may have ended twice.
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
            -- A run without a scheduled time has ended as asked, even if it was pruned since.
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
            -- An application whose run is followed must not become the owner of this one.
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
        -- The columns of job_runs_fire, as in fire.sql. Without them, a sequence that is behind its
        -- table would drop runs in silence.
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
