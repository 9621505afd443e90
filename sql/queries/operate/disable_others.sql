-- Disables definitions that are missing from the file. Their schedules stop, and only the owner can
-- enqueue them.
-- $1  the names in the file
-- Returns the names of the definitions that were enabled.
UPDATE jobctl.job_definitions AS definition
SET
    enabled = false,
    updated_at = now()
WHERE definition.name <> ALL ($1::text[])
    AND definition.enabled
RETURNING definition.name
