-- Lists the applied migrations, whether they are unchanged, and which of their objects are missing.
-- $1  versions    $2  their texts
SELECT
    applied.version,
    known.text IS NULL
        OR applied.checksum = encode(sha256(convert_to(known.text, 'UTF8')), 'hex') AS unchanged,
    ARRAY(
        SELECT lower(created[1]) || ' ' || created[2]
        FROM regexp_matches(
            known.text,
            '^CREATE (TABLE|VIEW|FUNCTION|TRIGGER) (?:jobctl[.])?(\w+)',
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
    ) AS missing
FROM jobctl.schema_migrations AS applied
LEFT JOIN unnest($1::integer[], $2::text[]) AS known (version, text)
    ON known.version = applied.version
ORDER BY applied.version
