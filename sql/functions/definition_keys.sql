-- Returns a definition as JSON with the keys of the definitions file; durations are in seconds.
-- Internal: only jobctl calls it.
CREATE OR REPLACE FUNCTION jobctl.definition_keys(definition jobctl.job_definitions)
RETURNS jsonb
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE
        -- The file calls the command `shell`. Any program may insert a definition, so an action may
        -- be any JSON, also without a command.
        WHEN definition.kind = 'shell' AND jsonb_typeof(definition.action) = 'object'
            THEN definition.action - 'command'
                || jsonb_build_object('shell', definition.action -> 'command')
        ELSE jsonb_build_object(definition.kind, definition.action)
    END || jsonb_build_object(
        'payload', definition.payload,
        'schedule', definition.schedule,
        'time_zone', definition.time_zone,
        'catch_up', definition.catch_up,
        'each_worker', definition.each_worker,
        'workers', definition.workers,
        'overlap', definition.overlap,
        'max_running', definition.max_running,
        'rate', definition.rate,
        'burst', definition.burst,
        'max_running_per_share', definition.max_running_per_share,
        'rate_per_share', definition.rate_per_share,
        'lock', definition.lock,
        'max_waiting', definition.max_waiting,
        'when_full', definition.when_full,
        'snooze', definition.snooze,
        'pass_result', definition.pass_result,
        'result', definition.result,
        'max_attempts', definition.max_attempts,
        'timeout', extract(epoch FROM definition.timeout),
        'max_age', extract(epoch FROM definition.max_age),
        'max_lag', extract(epoch FROM definition.max_lag),
        'alert_after', definition.alert_after,
        'usual', definition.usual,
        'expires', extract(epoch FROM definition.expires),
        'keep', extract(epoch FROM definition.keep),
        'keep_dead', extract(epoch FROM definition.keep_dead),
        'backoff', definition.backoff,
        'priority', definition.priority,
        'queue', definition.queue,
        'spread', extract(epoch FROM definition.spread),
        'on_dead', definition.on_dead,
        'on_success', definition.on_success,
        'on_end', definition.on_end,
        'after', definition.after,
        'when', definition.when,
        'file', nullif(definition.file, ''),
        'enqueuers', definition.enqueuers,
        'enqueue_may_set', definition.enqueue_may_set,
        'enabled', definition.enabled
    )
$$;
