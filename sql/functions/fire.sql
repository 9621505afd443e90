-- Fires a schedule of a definition or of an application: queues runs for its due times, and moves
-- its next_run_at forward. Returns the ids of the runs. Internal: only jobctl calls it.
--
--   seen             the next_run_at that the tick read; NULL: the schedule has none yet
--   schedule, time_zone: the expression and the zone from which the tick computed the times
--   next             the new next_run_at
--   times            the nominal times to queue, with one run each, or with one run for each worker
--   delay            the spread: how much later than its time each run is due
--   missed           how many nominal times the tick leaves out, because they were missed
--   put_off_until    NULL, or: the schedule can't be fired, so ticks ignore it until then. `next`
--                    is then `seen`, and `times` is empty
--   schedule_id      the schedule of an application; NULL: that of the definition
--
-- With overlap `skip`, only the newest time is fired, and only while no earlier run of the schedule
-- is unfinished. An application's schedule without a next time has ended, so it is deleted.
--
-- Returns NULL and changes nothing if another tick fired first or is firing, if the schedule is not
-- due, or if its expression or time zone is not that of the arguments. So several ticks fire a time
-- only once. Also returns NULL for times that no schedule has: in the future, before `seen`, not at
-- a full minute, or more of them than catch_up allows.
CREATE OR REPLACE FUNCTION jobctl.fire(
    definition_id bigint,
    seen timestamptz,
    schedule text,
    time_zone text,
    next timestamptz,
    times timestamptz[],
    delay interval,
    missed bigint,
    put_off_until timestamptz DEFAULT NULL,
    schedule_id bigint DEFAULT NULL
)
RETURNS bigint[]
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
-- Keeps the plans: new plans would triple the time of a call. A kept plan was perhaps made for an
-- empty table, so it must not read whole tables.
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    definition jobctl.job_definitions;
    -- The schedule of an application; NULLs if the definition's schedule fires.
    app jobctl.job_schedules;
    fired bigint[] := '{}';
    due timestamptz[] := fire.times;
    -- The worker of each run; NULL: any worker may run it. Not the text `{NULL}`, which depends on
    -- the setting array_nulls.
    workers text[] := ARRAY[NULL];
    skipped bigint;
BEGIN
    -- Locks the schedule. If another tick has locked it, the row stays NULL, and the checks fail.
    IF fire.schedule_id IS NULL THEN
        SELECT * INTO definition
        FROM jobctl.job_definitions AS stored
        WHERE stored.id = fire.definition_id
        FOR NO KEY UPDATE SKIP LOCKED;
    ELSE
        SELECT * INTO app
        FROM jobctl.job_schedules AS stored
        WHERE stored.id = fire.schedule_id
            AND stored.definition_id = fire.definition_id
        FOR NO KEY UPDATE SKIP LOCKED;
        SELECT * INTO definition
        FROM jobctl.job_definitions AS stored
        WHERE stored.id = app.definition_id;
        -- The application's schedule replaces that of the definition from here on.
        definition.schedule := app.schedule;
        definition.time_zone := app.time_zone;
        definition.next_run_at := app.next_run_at;
        definition.payload := app.payload;
    END IF;
    IF (
        definition.enabled
        AND definition.paused_at IS NULL
        AND definition.next_run_at IS NOT DISTINCT FROM fire.seen
        AND definition.schedule = fire.schedule
        AND definition.time_zone = fire.time_zone
        AND coalesce(fire.seen <= now(), true)
        -- The checks from here on limit what a worker can invent, because SQL can't compute the
        -- times of a schedule: each minute fires at most once.
        AND CASE
            -- A schedule that is put off keeps its time.
            WHEN fire.put_off_until IS NOT NULL
                THEN fire.next IS NOT DISTINCT FROM fire.seen AND cardinality(fire.times) = 0
            -- An application's schedule without an end always has a next time.
            WHEN fire.next IS NULL THEN app.id IS NULL OR app.ends_at IS NOT NULL
            -- The next time is a full minute, and later than the one that was due. A schedule that
            -- had no time yet gets its first one: after it was stored, or after the tick read it,
            -- which was less than an hour ago.
            ELSE extract(epoch FROM fire.next) % 60 = 0
                AND fire.next
                    > coalesce(fire.seen, least(app.updated_at, now() - interval '1 hour'))
        END
        AND cardinality(fire.times) <= definition.most_fires
        AND coalesce(array_ndims(fire.times), 1) = 1
        AND extract(epoch FROM fire.delay) BETWEEN 0 AND extract(epoch FROM definition.spread)
        -- At most one time a minute was missed. Without a limit, the sum in skipped_fires could
        -- overflow.
        AND fire.missed BETWEEN 0
            AND coalesce(extract(epoch FROM now() - fire.seen) / 60, 0) + 1
        AND NOT EXISTS (
            SELECT FROM unnest(fire.times) AS nominal
            WHERE (
                nominal BETWEEN fire.seen AND now()
                AND (nominal = fire.seen OR extract(epoch FROM nominal) % 60 = 0)
                AND coalesce(nominal < fire.next, true)
                AND nominal BETWEEN coalesce(app.starts_at, '-infinity')
                    AND coalesce(app.ends_at, 'infinity')
            ) IS NOT TRUE
        )
    ) IS NOT TRUE THEN
        RETURN NULL;
    END IF;
    IF definition.each_worker OR definition.workers IS NOT NULL THEN
        workers := jobctl.regular_workers(definition.workers);
    END IF;
    IF definition.overlap = 'skip' THEN
        -- Keep the newest of several due times, and the workers without an unfinished run.
        due := due[array_upper(due, 1):];
        workers := ARRAY(
            SELECT pinned
            FROM unnest(workers) AS pinned
            -- The conditions also repeat those of the indexes, so that these can be used. Running
            -- and waiting runs of a definition have an index each.
            WHERE CASE
                WHEN app.id IS NOT NULL THEN NOT EXISTS (
                    SELECT FROM jobctl.job_runs AS run
                    WHERE run.schedule = app.name
                        AND run.schedule IS NOT NULL
                        AND run.finished_at IS NULL
                        AND run.definition_id = definition.id
                        AND run.worker IS NOT DISTINCT FROM pinned
                )
                -- With scheduled_for, but without the name of an application's schedule: runs of
                -- the definition's own schedule.
                ELSE NOT EXISTS (
                    SELECT FROM jobctl.job_runs AS run
                    WHERE run.job_type = definition.name
                        AND run.status = 'running'
                        AND run.scheduled_for IS NOT NULL
                        AND run.schedule IS NULL
                        AND run.worker IS NOT DISTINCT FROM pinned
                ) AND NOT EXISTS (
                    SELECT FROM jobctl.job_runs AS run
                    WHERE run.job_type = definition.name
                        AND run.job_type NOT IN ('shell', 'http')
                        AND run.status IN ('queued', 'failed')
                        AND run.scheduled_for IS NOT NULL
                        AND run.schedule IS NULL
                        AND run.worker IS NOT DISTINCT FROM pinned
                )
            END
        );
    END IF;
    -- In seconds, because the length of a month or a day depends on the time that it is added to.
    delay := extract(epoch FROM fire.delay) * interval '1 second';
    -- The payload of a schedule that is put off may be unreadable. Only this statement reads
    -- payloads, and only to insert runs. For a schedule that is put off, `times` is empty, see the
    -- checks above, so the statement inserts no run.
    WITH queued AS (
        INSERT INTO jobctl.job_runs AS run (
            definition_id,
            job_type,
            payload,
            queue,
            priority,
            run_at,
            max_attempts,
            backoff,
            scheduled_for,
            schedule,
            worker,
            share,
            expires_at,
            enqueued_by
        )
        SELECT
            definition.id,
            definition.name,
            definition.payload,
            definition.queue,
            definition.priority,
            nominal + delay,
            definition.max_attempts,
            definition.backoff,
            nominal,
            app.name,
            pinned,
            app.share,
            nominal + delay + extract(epoch FROM definition.expires) * interval '1 second',
            coalesce(app.owner, SESSION_USER)
        FROM unnest(due) AS nominal
        CROSS JOIN unnest(workers) AS pinned
        ORDER BY nominal, pinned
        -- Only a conflict in the index job_runs_fire, whose columns these are: the time already has
        -- its run. A conflict of ids, if the sequence is behind its table, still raises an error.
        ON CONFLICT (definition_id, coalesce(schedule, ''), scheduled_for, coalesce(worker, ''))
            WHERE scheduled_for IS NOT NULL
            DO NOTHING
        RETURNING run.id, run.scheduled_for
    )
    SELECT
        coalesce(array_agg(queued.id ORDER BY queued.id), '{}'),
        fire.missed + cardinality(fire.times) - count(DISTINCT queued.scheduled_for)
    INTO fired, skipped
    FROM queued;
    PERFORM jobctl.note_predecessors(fired);
    IF app.id IS NULL THEN
        UPDATE jobctl.job_definitions AS moved
        SET
            next_run_at = fire.next,
            put_off_until = fire.put_off_until,
            skipped_fires = moved.skipped_fires + skipped
        WHERE moved.id = definition.id;
    ELSIF fire.next IS NULL AND fire.put_off_until IS NULL THEN
        DELETE FROM jobctl.job_schedules AS ended WHERE ended.id = app.id;
    ELSE
        UPDATE jobctl.job_schedules AS moved
        SET
            next_run_at = fire.next,
            put_off_until = fire.put_off_until,
            skipped_fires = moved.skipped_fires + skipped
        WHERE moved.id = app.id;
    END IF;
    RETURN fired;
END
$$;
