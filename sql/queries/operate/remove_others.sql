-- Deletes definitions that are missing from the file. A claim ends their waiting runs as dead.
-- $1  the names in the file
-- Returns the names of the deleted definitions.
DELETE FROM jobctl.job_definitions AS definition
WHERE definition.name <> ALL ($1::text[])
RETURNING definition.name
