-- The migrations that were applied, and whether they are still what this program holds.
-- $1  versions    $2  their texts
SELECT
    applied.version,
    known.text IS NULL
        OR applied.checksum = encode(sha256(convert_to(known.text, 'UTF8')), 'hex') AS unchanged
FROM jobctl.schema_migrations AS applied
LEFT JOIN unnest($1::integer[], $2::text[]) AS known (version, text)
    ON known.version = applied.version
ORDER BY applied.version
