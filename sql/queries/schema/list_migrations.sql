-- Lists the applied migrations, functions and views, whether their texts are still the same, and
-- which of their objects are missing or altered.
-- Functions and views have no version.
-- $1  versions    $2  names    $3  texts
-- $4  altered: functions, views and triggers that are not as `migrate` made them
SELECT
    applied.version,
    applied.name,
    known.text IS NULL
        OR applied.checksum = encode(sha256(convert_to(known.text, 'UTF8')), 'hex') AS unchanged,
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
            -- $4 compares with the schema after all migrations: a missing one may change a table.
            AND (applied.version IS NULL OR newest.is_applied)
    ) AS missing
FROM jobctl.schema_migrations AS applied
LEFT JOIN unnest($1::integer[], $2::text[], $3::text[]) AS known (version, name, text)
    ON known.version = applied.version
    OR (known.version IS NULL AND applied.version IS NULL AND known.name = applied.name)
CROSS JOIN (
    SELECT max(migration.version) >= (SELECT max(version) FROM unnest($1::integer[]) AS version)
        AS is_applied
    FROM jobctl.schema_migrations AS migration
) AS newest
ORDER BY applied.version, applied.name
