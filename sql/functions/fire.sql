-- Fires a schedule: moves next_run_at forward from `seen`, which may be NULL, and queues a run for
-- each of `times`, or one for each worker. If several ticks fire the same times, only the first
-- one succeeds. With overlap `skip`, a time is left out while an earlier run is not finished. A
-- schedule that can't be fired is put off: next_run_at stays at `seen`. Returns the ids of the
-- runs.
--
-- Returns NULL and changes nothing if another tick fired first or is firing, if the schedule is not
-- due, or if its expression or time zone differs from the arguments. The same applies to times that
-- no schedule yields: in the future, before `seen`, between two minutes, or more than catch_up
-- allows.
CREATE OR REPLACE FUNCTION jobctl.fire(
    definition_id bigint,
    seen timestamptz,
    schedule text,
    time_zone text,
    next timestamptz,
    times timestamptz[],
    delay interval,
    missed bigint,
    put_off_until timestamptz DEFAULT NULL
)
RETURNS bigint[]
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $$
#variable_conflict use_column
DECLARE
    definition jobctl.job_definitions;
    fired bigint[] := '{}';
    due timestamptz[] := fire.times;
    -- NULL: any worker may run it.
    workers text[] := '{NULL}';
    left_out bigint;
BEGIN
    -- `coalesce` keeps the planner from using job_definitions_next_run: at midnight, all schedules
    -- match there.
    SELECT * INTO definition
    FROM jobctl.job_definitions AS seen
    WHERE seen.id = fire.definition_id
        AND coalesce(seen.enabled AND seen.paused_at IS NULL AND seen.schedule IS NOT NULL, false)
        AND seen.next_run_at IS NOT DISTINCT FROM fire.seen
        AND seen.schedule = fire.schedule
        AND seen.time_zone = fire.time_zone
        AND coalesce(fire.seen <= now(), true)
        -- SQL cannot read a schedule, so a worker could make times up: each minute fires at most
        -- once. Only a schedule that is put off stays where it is.
        AND CASE
            WHEN fire.put_off_until IS NOT NULL
                THEN fire.next IS NOT DISTINCT FROM fire.seen AND cardinality(fire.times) = 0
            ELSE coalesce(
                fire.next > coalesce(fire.seen, now() - interval '1 hour')
                    AND extract(epoch FROM fire.next) % 60 = 0,
                true
            )
        END
        AND cardinality(fire.times) <= seen.most_fires
        AND coalesce(array_ndims(fire.times), 1) = 1
        AND extract(epoch FROM fire.delay) BETWEEN 0 AND extract(epoch FROM seen.spread)
        -- A sum of honest numbers never overflows.
        AND fire.missed BETWEEN 0
            AND coalesce(extract(epoch FROM now() - fire.seen) / 60, 0) + 1
        AND NOT EXISTS (
            SELECT FROM unnest(fire.times) AS nominal
            WHERE (
                nominal BETWEEN fire.seen AND now()
                AND (nominal = fire.seen OR extract(epoch FROM nominal) % 60 = 0)
                AND coalesce(nominal < fire.next, true)
            ) IS NOT TRUE
        )
    FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    UPDATE jobctl.job_definitions AS moved
    SET
        next_run_at = fire.next,
        put_off_until = fire.put_off_until
    WHERE moved.id = definition.id;
    IF fire.put_off_until IS NOT NULL THEN
        -- The payload may be unreadable, so the rest of this function must not read it.
        RETURN fired;
    END IF;
    IF definition.each_worker OR definition.workers IS NOT NULL THEN
        workers := jobctl.regular_workers(definition.workers);
    END IF;
    IF definition.overlap = 'skip' THEN
        -- Only the newest of several due times is fired, and only if no run is unfinished.
        due := due[array_upper(due, 1):];
        workers := ARRAY(
            SELECT pinned
            FROM unnest(workers) AS pinned
            WHERE NOT EXISTS (
                SELECT FROM jobctl.job_runs AS run
                WHERE run.job_type = definition.name
                    AND run.status = 'running'
                    AND run.scheduled_for IS NOT NULL
                    AND run.worker IS NOT DISTINCT FROM pinned
            ) AND NOT EXISTS (
                SELECT FROM jobctl.job_runs AS run
                WHERE run.job_type = definition.name
                    AND run.job_type NOT IN ('shell', 'http')
                    AND run.status IN ('queued', 'failed')
                    AND run.scheduled_for IS NOT NULL
                    AND run.worker IS NOT DISTINCT FROM pinned
            )
        );
    END IF;
    -- As in try_enqueue.
    delay := extract(epoch FROM fire.delay) * interval '1 second';
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
            worker,
            expires_at
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
            pinned,
            nominal + delay + extract(epoch FROM definition.expires) * interval '1 second'
        FROM unnest(due) AS nominal
        CROSS JOIN unnest(workers) AS pinned
        ORDER BY nominal, pinned
        ON CONFLICT (definition_id, scheduled_for, coalesce(worker, ''))
            WHERE scheduled_for IS NOT NULL
            DO NOTHING
        RETURNING run.id, run.scheduled_for
    )
    SELECT
        coalesce(array_agg(queued.id ORDER BY queued.id), '{}'),
        cardinality(fire.times) - count(DISTINCT queued.scheduled_for)
    INTO fired, left_out
    FROM queued;
    PERFORM jobctl.note_predecessors(fired);
    IF fire.missed > 0 OR left_out > 0 THEN
        UPDATE jobctl.job_definitions AS skipped
        SET skipped_fires = skipped.skipped_fires + fire.missed + left_out
        WHERE skipped.id = definition.id;
    END IF;
    RETURN fired;
END
$$;
