-- Makes the definitions equal to the file. An unchanged definition is not updated, unless its
-- schedule was put off. A changed schedule continues at the next nominal time given here, unless an
-- earlier time is due and not fired.
-- $1  definitions: a JSON array, in the words of the columns, next_run_at included
-- A row per added or changed definition: its keys before (NULL: added) and now, as in the file.
WITH wanted AS (
    SELECT *
    FROM jsonb_to_recordset($1::jsonb) AS wanted (
        name text,
        kind text,
        action jsonb,
        payload jsonb,
        schedule text,
        time_zone text,
        catch_up text,
        overlap text,
        max_running integer,
        rate text,
        burst integer,
        max_running_per_share integer,
        max_waiting integer,
        when_full text,
        snooze text,
        pass_result boolean,
        max_attempts integer,
        timeout float8,
        max_age float8,
        max_lag float8,
        expires float8,
        keep float8,
        keep_dead float8,
        backoff text,
        priority integer,
        queue text,
        spread float8,
        on_dead text,
        on_success text,
        on_end text,
        file text,
        enqueuers text[],
        enqueue_may_set text[],
        enabled boolean,
        next_run_at timestamptz
    )
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
        overlap,
        max_running,
        rate,
        burst,
        max_running_per_share,
        max_waiting,
        when_full,
        snooze,
        pass_result,
        max_attempts,
        timeout,
        max_age,
        max_lag,
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
        wanted.overlap,
        wanted.max_running,
        wanted.rate,
        wanted.burst,
        wanted.max_running_per_share,
        wanted.max_waiting,
        wanted.when_full,
        wanted.snooze,
        wanted.pass_result,
        wanted.max_attempts,
        make_interval(secs => wanted.timeout),
        make_interval(secs => wanted.max_age),
        make_interval(secs => wanted.max_lag),
        make_interval(secs => wanted.expires),
        make_interval(secs => wanted.keep),
        make_interval(secs => wanted.keep_dead),
        wanted.backoff,
        wanted.priority,
        wanted.queue,
        make_interval(secs => wanted.spread),
        wanted.on_dead,
        wanted.on_success,
        wanted.on_end,
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
        overlap = excluded.overlap,
        max_running = excluded.max_running,
        rate = excluded.rate,
        burst = excluded.burst,
        max_running_per_share = excluded.max_running_per_share,
        max_waiting = excluded.max_waiting,
        when_full = excluded.when_full,
        snooze = excluded.snooze,
        pass_result = excluded.pass_result,
        max_attempts = excluded.max_attempts,
        timeout = excluded.timeout,
        max_age = excluded.max_age,
        max_lag = excluded.max_lag,
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
        file = excluded.file,
        enqueuers = excluded.enqueuers,
        enqueue_may_set = excluded.enqueue_may_set,
        enabled = excluded.enabled,
        rate_next_at = CASE
            WHEN (definition.rate, definition.burst)
                IS NOT DISTINCT FROM (excluded.rate, excluded.burst)
                THEN definition.rate_next_at
        END,
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
        put_off_until = NULL,
        updated_at = now()
    WHERE (
        definition.kind,
        definition.action,
        definition.payload,
        definition.schedule,
        definition.time_zone,
        definition.catch_up,
        definition.overlap,
        definition.max_running,
        definition.rate,
        definition.burst,
        definition.max_running_per_share,
        definition.max_waiting,
        definition.when_full,
        definition.snooze,
        definition.pass_result,
        definition.max_attempts,
        definition.timeout,
        definition.max_age,
        definition.max_lag,
        definition.expires,
        definition.keep,
        definition.keep_dead,
        definition.backoff,
        definition.priority,
        definition.queue,
        definition.spread,
        definition.on_dead,
        definition.on_success,
        definition.on_end,
        definition.file,
        definition.enqueuers,
        definition.enqueue_may_set,
        definition.enabled
    ) IS DISTINCT FROM (
        excluded.kind,
        excluded.action,
        excluded.payload,
        excluded.schedule,
        excluded.time_zone,
        excluded.catch_up,
        excluded.overlap,
        excluded.max_running,
        excluded.rate,
        excluded.burst,
        excluded.max_running_per_share,
        excluded.max_waiting,
        excluded.when_full,
        excluded.snooze,
        excluded.pass_result,
        excluded.max_attempts,
        excluded.timeout,
        excluded.max_age,
        excluded.max_lag,
        excluded.expires,
        excluded.keep,
        excluded.keep_dead,
        excluded.backoff,
        excluded.priority,
        excluded.queue,
        excluded.spread,
        excluded.on_dead,
        excluded.on_success,
        excluded.on_end,
        excluded.file,
        excluded.enqueuers,
        excluded.enqueue_may_set,
        excluded.enabled
    )
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
