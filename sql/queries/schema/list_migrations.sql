-- Lists the applied migrations, functions and views: whether their texts are `unchanged`, and which
-- of their objects are `missing` or altered. Functions and views have no version.
-- $1  versions    $2  names    $3  texts: those of this program
-- $4  altered: objects that differ from docs/schema.sql, which is the schema after all migrations.
--     While a migration is not applied yet, objects of earlier migrations may rightly differ. So
--     they count as altered only when all are applied.
SELECT
    applied.version,
    applied.name,
    -- No text: this program does not have the migration, function or view.
    known.text IS NULL
        OR applied.checksum = encode(sha256(convert_to(known.text, 'UTF8')), 'hex') AS unchanged,
    -- The objects of the text, such as `table job_runs`, that do not exist or are altered.
    -- created[1] is the kind, created[2] the name.
    ARRAY(
        SELECT lower(created[1] COLLATE "C") || ' ' || created[2]
        FROM regexp_matches(
            known.text,
            '^CREATE (?:OR REPLACE )?(TABLE|VIEW|FUNCTION|TRIGGER) (?:jobctl[.])?([a-z0-9_]+)',
            'gn'
        ) AS created
        WHERE created[2] NOT IN (
            SELECT relation.relname
            FROM pg_class AS relation
            WHERE relation.relnamespace = 'jobctl'::regnamespace
            UNION ALL
            SELECT function.proname
            FROM pg_proc AS function
            WHERE function.pronamespace = 'jobctl'::regnamespace
            UNION ALL
            SELECT trigger.tgname
            FROM pg_trigger AS trigger
            JOIN pg_class AS relation ON relation.oid = trigger.tgrelid
            WHERE relation.relnamespace = 'jobctl'::regnamespace
        )
            OR lower(created[1] COLLATE "C") || ' ' || created[2] = ANY ($4::text[])
            AND (applied.version IS NULL OR schema.is_current)
    ) AS missing
FROM jobctl.schema_migrations AS applied
-- Migrations are found by their versions, functions and views by their names.
LEFT JOIN unnest($1::integer[], $2::text[], $3::text[]) AS known (version, name, text)
    ON known.version = applied.version
    OR (known.version IS NULL AND applied.version IS NULL AND known.name = applied.name)
CROSS JOIN (
    SELECT max(migration.version) >= (SELECT max(version) FROM unnest($1::integer[]) AS version)
        AS is_current
    FROM jobctl.schema_migrations AS migration
) AS schema
ORDER BY applied.version, applied.name
