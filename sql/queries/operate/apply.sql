-- Makes the definitions equal to the file. An unchanged definition is not updated, except to end
-- the delay of a schedule that was put off.
-- $1  definitions: a JSON array. The fields are columns of job_definitions, with next_run_at
-- A row per added or changed definition: its keys before (NULL: it was added) and now, as in the
-- file.
--
-- A changed schedule continues at the given next_run_at, except if a time of the old schedule is
-- due and has not been fired. Then that time comes first.
WITH wanted AS (
    SELECT * FROM jsonb_populate_recordset(NULL::jobctl.job_definitions, $1::jsonb)
),
before AS (
    SELECT
        definition.id,
        jobctl.definition_keys(definition) AS keys
    FROM jobctl.job_definitions AS definition
    JOIN wanted USING (name)
),
applied AS (
    INSERT INTO jobctl.job_definitions AS definition (
        name,
        kind,
        action,
        payload,
        schedule,
        time_zone,
        catch_up,
        each_worker,
        workers,
        overlap,
        max_running,
        rate,
        burst,
        max_running_per_share,
        rate_per_share,
        lock,
        max_waiting,
        when_full,
        snooze,
        pass_result,
        result,
        max_attempts,
        timeout,
        max_age,
        max_lag,
        alert_after,
        usual,
        expires,
        keep,
        keep_dead,
        backoff,
        priority,
        queue,
        spread,
        on_dead,
        on_success,
        on_end,
        after,
        "when",
        file,
        enqueuers,
        enqueue_may_set,
        enabled,
        next_run_at
    )
    SELECT
        wanted.name,
        wanted.kind,
        wanted.action,
        wanted.payload,
        wanted.schedule,
        wanted.time_zone,
        wanted.catch_up,
        wanted.each_worker,
        wanted.workers,
        wanted.overlap,
        wanted.max_running,
        wanted.rate,
        wanted.burst,
        wanted.max_running_per_share,
        wanted.rate_per_share,
        wanted.lock,
        wanted.max_waiting,
        wanted.when_full,
        wanted.snooze,
        wanted.pass_result,
        wanted.result,
        wanted.max_attempts,
        wanted.timeout,
        wanted.max_age,
        wanted.max_lag,
        wanted.alert_after,
        wanted.usual,
        wanted.expires,
        wanted.keep,
        wanted.keep_dead,
        wanted.backoff,
        wanted.priority,
        wanted.queue,
        wanted.spread,
        wanted.on_dead,
        wanted.on_success,
        wanted.on_end,
        wanted.after,
        wanted.when,
        wanted.file,
        wanted.enqueuers,
        wanted.enqueue_may_set,
        wanted.enabled,
        wanted.next_run_at
    FROM wanted
    ON CONFLICT (name) DO UPDATE SET
        kind = excluded.kind,
        action = excluded.action,
        payload = excluded.payload,
        schedule = excluded.schedule,
        time_zone = excluded.time_zone,
        catch_up = excluded.catch_up,
        each_worker = excluded.each_worker,
        workers = excluded.workers,
        overlap = excluded.overlap,
        max_running = excluded.max_running,
        rate = excluded.rate,
        burst = excluded.burst,
        max_running_per_share = excluded.max_running_per_share,
        rate_per_share = excluded.rate_per_share,
        lock = excluded.lock,
        max_waiting = excluded.max_waiting,
        when_full = excluded.when_full,
        snooze = excluded.snooze,
        pass_result = excluded.pass_result,
        result = excluded.result,
        max_attempts = excluded.max_attempts,
        timeout = excluded.timeout,
        max_age = excluded.max_age,
        max_lag = excluded.max_lag,
        alert_after = excluded.alert_after,
        usual = excluded.usual,
        expires = excluded.expires,
        keep = excluded.keep,
        keep_dead = excluded.keep_dead,
        backoff = excluded.backoff,
        priority = excluded.priority,
        queue = excluded.queue,
        spread = excluded.spread,
        on_dead = excluded.on_dead,
        on_success = excluded.on_success,
        on_end = excluded.on_end,
        after = excluded.after,
        "when" = excluded.when,
        file = excluded.file,
        enqueuers = excluded.enqueuers,
        enqueue_may_set = excluded.enqueue_may_set,
        enabled = excluded.enabled,
        -- With another rate or burst, the earlier starts do not count: NULL.
        rate_next_at = CASE
            WHEN (definition.rate, definition.burst)
                IS NOT DISTINCT FROM (excluded.rate, excluded.burst)
                THEN definition.rate_next_at
        END,
        -- Keeps the stored time if the schedule is the same, or if a time of the old schedule is
        -- due, see above.
        next_run_at = CASE
            WHEN definition.enabled
                AND excluded.enabled
                AND (
                    (definition.schedule, definition.time_zone)
                        IS NOT DISTINCT FROM (excluded.schedule, excluded.time_zone)
                    OR (
                        excluded.schedule IS NOT NULL
                        AND definition.paused_at IS NULL
                        AND definition.next_run_at <= now()
                    )
                )
                THEN coalesce(definition.next_run_at, excluded.next_run_at)
            ELSE excluded.next_run_at
        END,
        resumed_at = CASE
            WHEN excluded.enabled AND NOT definition.enabled THEN now()
            ELSE definition.resumed_at
        END,
        put_off_until = NULL,
        updated_at = now()
    -- Skips unchanged definitions. Compares the whole action, too, because another program may have
    -- stored more in it than the keys.
    WHERE (definition.action, jobctl.definition_keys(definition))
        IS DISTINCT FROM (excluded.action, jobctl.definition_keys(excluded))
        OR definition.put_off_until IS NOT NULL
    RETURNING
        definition.id,
        definition.name,
        jobctl.definition_keys(definition) AS keys
)
SELECT
    applied.name,
    before.keys::text AS before,
    applied.keys::text AS after
FROM applied
LEFT JOIN before ON before.id = applied.id
ORDER BY applied.name
