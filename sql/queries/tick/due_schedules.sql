-- Schedules whose next nominal time is due or unknown, the oldest first. fire.sql checks them
-- again.
-- $1  limit
SELECT
    now() AS now,
    definition.id,
    definition.name,
    definition.schedule,
    definition.time_zone,
    definition.catch_up,
    definition.most_fires,
    extract(epoch FROM definition.spread)::float8 AS spread,
    definition.next_run_at AS seen
FROM jobctl.job_definitions AS definition
WHERE definition.enabled
    AND definition.paused_at IS NULL
    AND definition.schedule IS NOT NULL
    AND (definition.next_run_at IS NULL OR definition.next_run_at <= now())
    -- As in wake.sql.
    AND (
        definition.put_off_until IS NULL
        OR definition.put_off_until NOT BETWEEN now() AND now() + interval '1 hour 1 minute'
    )
ORDER BY definition.next_run_at, definition.id
LIMIT $1::bigint
