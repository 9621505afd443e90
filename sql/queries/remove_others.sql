-- Removes definitions that the file does not have. Their waiting runs end dead, with that reason, when
-- they are claimed.
-- $1  the names that the file has
-- Returns the names of those that were removed.
DELETE FROM jobctl.job_definitions AS definition
WHERE definition.name <> ALL ($1::text[])
RETURNING definition.name
