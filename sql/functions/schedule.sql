-- Stores a schedule of an application in the caller's transaction: ticks queue runs of the job at
-- its times, with its payload and share. Returns what happened, and when its next time is known.
--
-- The same name replaces the schedule of that name. The next time stays if it is already due, as it
-- does when `apply` changes a definition: otherwise a change just before the tick would lose it. It
-- also stays if the expression, the time zone and `starts` stay the same. Another job, or a time
-- before `starts` or after `ends`, always gets a new next time.
--
-- Errors; the DETAIL is the job, or the name if the schedule belongs to another login:
--   JC003  no such definition
--   22023  an argument is wrong; the message names the field of the expression
--   42501  the role may not enqueue the job, or another login has the name
--   53400  the login has 100,000 schedules of this job
--   55000  the definition is disabled
--   55P03  other open transactions store or delete a schedule of this name
CREATE OR REPLACE FUNCTION jobctl.schedule(
    name text,
    job text,
    schedule text,
    time_zone text DEFAULT 'UTC',
    payload jsonb DEFAULT '{}',
    share text DEFAULT NULL,
    starts timestamptz DEFAULT NULL,
    ends timestamptz DEFAULT NULL,
    caller jobctl.caller DEFAULT CURRENT_USER
)
RETURNS text
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
SET lock_timeout = '2s'
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_variable
DECLARE
    most CONSTANT integer := 100000;
    definition jobctl.job_definitions;
    stored jobctl.job_schedules;
    refusal record;
    reason text;
    has_same_times boolean;
    keeps_next_time boolean;
BEGIN
    time_zone := coalesce(time_zone, 'UTC');
    payload := coalesce(payload, '{}');
    SELECT * INTO definition FROM jobctl.job_definitions AS known WHERE known.name = job;
    refusal := jobctl.enqueue_refusal(job, definition, NULL, NULL, caller);
    IF refusal.code IS NULL THEN
        reason := CASE
            WHEN name IS NULL THEN 'name is NULL'
            WHEN ends <= greatest(starts, now()) THEN 'ends must be later than now and starts'
            -- Not up to 9999, because some expressions have no time for decades.
            WHEN starts >= '9900-01-01 00:00Z'
                THEN 'starts is out of range; allowed are the years 1 to 9899'
            WHEN ends >= '10000-01-01 00:00Z'
                THEN 'ends is out of range; allowed are the years 1 to 9999'
        END;
        reason := coalesce(reason, jobctl.wrong_value(
            definition => definition,
            payload => payload,
            payload_bytes => octet_length(payload::text),
            key => name,
            run_at => starts,
            run_in => NULL,
            queue => NULL,
            max_attempts => NULL,
            timeout => NULL,
            backoff => NULL,
            is_backoff => NULL,
            key_scope => NULL,
            on_conflict => NULL,
            debounce => NULL,
            debounce_max => NULL,
            expires_in => NULL,
            share => share,
            lock => NULL,
            worker => NULL,
            traceparent => NULL,
            caller => caller
        ));
        -- The texts of wrong_value name its parameters. Name those of this function instead.
        reason := regexp_replace(regexp_replace(reason, '^key', 'name'), '^run_at', 'starts');
        reason := coalesce(reason, jobctl.schedule_error(schedule, time_zone));
        IF reason IS NOT NULL THEN
            refusal.code := '22023';
            refusal.reason := reason;
        END IF;
    END IF;
    -- Tries again if another session has stored or deleted the schedule between two statements.
    FOR try IN 1..5 LOOP
        EXIT WHEN refusal.code IS NOT NULL;
        stored := jobctl.lock_schedule(name, caller);
        IF (
            stored.definition_id, stored.schedule, stored.time_zone, stored.payload, stored.share,
            stored.starts_at, stored.ends_at
        ) IS NOT DISTINCT FROM (
            definition.id, schedule, time_zone, payload, share, starts, ends
        ) THEN
            -- Lets the next tick try a schedule again that could not be fired.
            UPDATE jobctl.job_schedules AS unchanged
            SET put_off_until = NULL
            WHERE unchanged.id = stored.id
                AND unchanged.put_off_until IS NOT NULL;
            RETURN 'unchanged';
        ELSIF stored.id IS NOT NULL THEN
            has_same_times := (
                stored.definition_id, stored.schedule, stored.time_zone, stored.starts_at
            ) IS NOT DISTINCT FROM (definition.id, schedule, time_zone, starts);
            -- NULL, if no tick has computed the next time yet, counts as false.
            keeps_next_time := stored.definition_id = definition.id
                AND stored.next_run_at
                    BETWEEN coalesce(starts, '-infinity') AND coalesce(ends, 'infinity')
                AND (stored.next_run_at <= now() OR has_same_times);
            UPDATE jobctl.job_schedules AS replaced
            SET
                definition_id = definition.id,
                schedule = schedule.schedule,
                time_zone = schedule.time_zone,
                payload = schedule.payload,
                share = schedule.share,
                starts_at = starts,
                ends_at = ends,
                next_run_at = CASE WHEN keeps_next_time THEN replaced.next_run_at END,
                put_off_until = NULL,
                -- If there is no next time, the next tick computes the first time after updated_at.
                -- If no tick has done that yet, updated_at stays, so that times since the schedule
                -- was first stored are not lost.
                updated_at = CASE
                    WHEN has_same_times AND replaced.next_run_at IS NULL THEN replaced.updated_at
                    ELSE now()
                END
            WHERE replaced.id = stored.id;
            PERFORM jobctl.require_written(
                'job_schedules', chosen => 1, written => FOUND::integer
            );
            RETURN CASE
                WHEN keeps_next_time THEN 'replaced'
                ELSE 'replaced; the next tick computes the next time'
            END;
        END IF;
        -- Counts the schedules of the login only if there may be so many: with unique ids, the
        -- smallest and the largest of `most` ids differ by at least most - 1.
        IF (
            SELECT max(own.id) - min(own.id)
            FROM jobctl.job_schedules AS own
            WHERE own.owner = SESSION_USER AND own.definition_id = definition.id
        ) >= most - 1 THEN
            PERFORM
            FROM jobctl.job_schedules AS own
            WHERE own.owner = SESSION_USER AND own.definition_id = definition.id
            OFFSET most - 1;
            IF FOUND THEN
                refusal.code := '53400';
                refusal.reason := format(
                    'login `%s` has %s schedules of job `%s`; that is the limit',
                    SESSION_USER,
                    most,
                    job
                );
                EXIT;
            END IF;
        END IF;
        INSERT INTO jobctl.job_schedules (
            name, definition_id, schedule, time_zone, payload, share, starts_at, ends_at
        )
        VALUES (name, definition.id, schedule, time_zone, payload, share, starts, ends)
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN 'scheduled; the next tick computes the first time';
        END IF;
    END LOOP;
    IF refusal.code IS NULL THEN
        -- If no such row exists, no other session has stored it, so a trigger has skipped the row.
        PERFORM jobctl.require_written('job_schedules', chosen => 1, written => count(*))
        FROM jobctl.job_schedules AS own
        WHERE own.name = schedule.name;
    END IF;
    RAISE EXCEPTION USING
        ERRCODE = coalesce(refusal.code, '55P03'),
        MESSAGE = coalesce(refusal.reason, 'other sessions store this schedule; try again'),
        DETAIL = coalesce(job, '');
END
$$;
