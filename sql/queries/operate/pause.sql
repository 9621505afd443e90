-- Pauses a schedule. Runs can still be enqueued, and waiting runs still start.
-- $1  name
-- Zero rows: no such definition.
UPDATE jobctl.job_definitions AS definition
SET
    paused_at = coalesce(definition.paused_at, now()),
    updated_at = now()
WHERE definition.name = $1::text
RETURNING definition.schedule IS NOT NULL AS has_schedule
