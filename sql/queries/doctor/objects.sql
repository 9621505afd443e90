-- Compares the objects of the schema with those that `migrate` makes. Reads only catalogs, which
-- every role may read.
-- $1  definitions: docs/schema.sql, as pg_dump writes it
-- A row per difference: its `kind`, the `object`, and the `statement` that removes it:
--   changed, missing  an object of jobctl that differs or does not exist. The statement is empty
--   foreign           not an object of jobctl. Indexes that only make queries faster are left out
--   hidden            a table with row level security, which makes the sessions fail that it
--                     applies to
--   event trigger     can run code in `migrate`. Those of extensions are left out
-- Zero rows: the schema is as the migrations made it.
--
-- plain_texts.sql must run first in the transaction, so that PostgreSQL writes names and values as
-- in docs/schema.sql. chr(59) is a semicolon: a query file has only one statement, so a test allows
-- no semicolon in it.
WITH expected AS MATERIALIZED (
    -- Before version 16, PostgreSQL writes the columns of a view with their tables (`job_runs.id`).
    SELECT regexp_replace($1::text, '\mjob_\w+[.]', '', 'g') AS text
),
relations AS (
    SELECT
        relation.oid,
        quote_ident(relation.relname) AS name,
        relation.relkind AS kind,
        relation.relpersistence AS persistence,
        relation.reloptions AS options,
        relation.relrowsecurity AS has_row_security
    FROM pg_class AS relation
    WHERE relation.relnamespace = to_regnamespace('jobctl')
),
table_lines AS (
    SELECT
        attribute.attrelid AS oid,
        attribute.attnum AS number,
        NULL::name AS name,
        quote_ident(attribute.attname) || ' '
            || format_type(attribute.atttypid, attribute.atttypmod)
            || CASE
                WHEN attribute.attcollation <> type.typcollation
                    THEN ' COLLATE pg_catalog.' || (
                        SELECT quote_ident(named.collname) FROM pg_collation AS named
                        WHERE named.oid = attribute.attcollation
                    )
                ELSE ''
            END
            || CASE
                WHEN attribute.attgenerated = 's'
                    THEN ' GENERATED ALWAYS AS (' || pg_get_expr(value.adbin, value.adrelid)
                        || ') STORED'
                WHEN attribute.atthasdef
                    THEN ' DEFAULT ' || pg_get_expr(value.adbin, value.adrelid)
                ELSE ''
            END
            || CASE WHEN attribute.attnotnull THEN ' NOT NULL' ELSE '' END AS line
    FROM relations
    JOIN pg_attribute AS attribute ON attribute.attrelid = relations.oid
    JOIN pg_type AS type ON type.oid = attribute.atttypid
    LEFT JOIN pg_attrdef AS value
        ON value.adrelid = attribute.attrelid AND value.adnum = attribute.attnum
    WHERE attribute.attnum > 0 AND NOT attribute.attisdropped
    UNION ALL
    SELECT
        fact.conrelid,
        -- The largest smallint: constraints come after all columns.
        32767,
        fact.conname,
        'CONSTRAINT ' || quote_ident(fact.conname) || ' ' || pg_get_constraintdef(fact.oid)
    FROM relations
    JOIN pg_constraint AS fact ON fact.conrelid = relations.oid
    WHERE fact.contype = 'c'
),
-- The objects of the schema as pg_dump writes them. The expected text contains the `head` of each
-- object of jobctl, and the whole `text` if the object has not changed. NULL: it is foreign, or has
-- a property that no object of jobctl has.
definitions AS (
    SELECT
        'table ' || relations.name AS object,
        'CREATE TABLE jobctl.' || relations.name || ' (' AS head,
        CASE relations.persistence WHEN 'p' THEN 'CREATE TABLE jobctl.' END
            || relations.name || E' (\n    '
            || (
                SELECT string_agg(table_lines.line, E',\n    ' ORDER BY number, table_lines.name)
                FROM table_lines
                WHERE table_lines.oid = relations.oid
            )
            || E'\n)' AS text,
        'DROP TABLE jobctl.' || relations.name AS statement
    FROM relations
    WHERE relations.kind = 'r'
    UNION ALL
    SELECT
        'view ' || relations.name,
        'CREATE VIEW jobctl.' || relations.name || ' AS',
        CASE WHEN relations.options IS NULL THEN 'CREATE VIEW jobctl.' END
            || relations.name || E' AS\n' || pg_get_viewdef(relations.oid),
        'DROP VIEW jobctl.' || relations.name
    FROM relations
    WHERE relations.kind = 'v'
    UNION ALL
    SELECT
        'index ' || relations.name,
        'INDEX ' || relations.name || ' ON ',
        pg_get_indexdef(relations.oid) || chr(59),
        'DROP INDEX jobctl.' || relations.name
    FROM relations
    JOIN pg_index AS index ON index.indexrelid = relations.oid
    CROSS JOIN expected
    WHERE NOT EXISTS (SELECT FROM pg_constraint AS fact WHERE fact.conindid = relations.oid)
        AND (
            index.indisunique
            OR index.indexprs IS NOT NULL
            OR index.indpred IS NOT NULL
            OR position('INDEX ' || relations.name || ' ON ' IN expected.text) > 0
        )
    UNION ALL
    SELECT
        'sequence ' || relations.name,
        'SEQUENCE NAME jobctl.' || relations.name,
        format(
            E'ALTER COLUMN %s ADD GENERATED %s AS IDENTITY (\n    SEQUENCE NAME jobctl.%s'
                '\n    START WITH %s\n    INCREMENT BY %s\n    %s\n    %s\n    CACHE %s%s\n)',
            quote_ident(attribute.attname),
            CASE attribute.attidentity WHEN 'a' THEN 'ALWAYS' ELSE 'BY DEFAULT' END,
            relations.name,
            sequence.seqstart,
            sequence.seqincrement,
            CASE WHEN sequence.seqmin = 1 THEN 'NO MINVALUE' ELSE 'MINVALUE' END,
            CASE WHEN sequence.seqmax = 9223372036854775807 THEN 'NO MAXVALUE' ELSE 'MAXVALUE' END,
            sequence.seqcache,
            CASE WHEN sequence.seqcycle THEN ' CYCLE' ELSE '' END
        ),
        format(
            'ALTER TABLE %s ALTER COLUMN %I DROP IDENTITY',
            owned.refobjid::regclass,
            attribute.attname
        )
    FROM relations
    JOIN pg_sequence AS sequence ON sequence.seqrelid = relations.oid
    JOIN pg_depend AS owned ON owned.objid = relations.oid AND owned.deptype = 'i'
    JOIN pg_attribute AS attribute
        ON attribute.attrelid = owned.refobjid AND attribute.attnum = owned.refobjsubid
    UNION ALL
    -- A sequence of an identity column belongs to its table.
    SELECT
        identified.type || ' ' || relations.name,
        NULL,
        NULL,
        'DROP ' || upper(identified.type COLLATE "C") || ' jobctl.' || relations.name
    FROM relations
    CROSS JOIN LATERAL pg_identify_object('pg_class'::regclass, relations.oid, 0) AS identified
    WHERE relations.kind NOT IN ('r', 'v', 'i', 'S')
        OR relations.kind = 'S'
        AND NOT EXISTS (
            SELECT FROM pg_depend AS owned
            WHERE owned.objid = relations.oid AND owned.deptype = 'i'
        )
    UNION ALL
    SELECT
        'function ' || quote_ident(function.proname),
        'CREATE FUNCTION jobctl.' || quote_ident(function.proname) || '(',
        'CREATE FUNCTION jobctl.' || quote_ident(function.proname)
            || '(' || pg_get_function_arguments(function.oid)
            || ') RETURNS ' || pg_get_function_result(function.oid)
            || E'\n    LANGUAGE ' || language.lanname
            || CASE function.provolatile
                WHEN 'i' THEN ' IMMUTABLE'
                WHEN 's' THEN ' STABLE'
                ELSE ''
            END
            || CASE WHEN function.proisstrict THEN ' STRICT' ELSE '' END
            || CASE WHEN function.prosecdef THEN ' SECURITY DEFINER' ELSE '' END
            || coalesce(
                (
                    SELECT string_agg(
                        format(
                            E'\n    SET %I TO ''%s''',
                            split_part(setting, '=', 1),
                            replace(split_part(setting, '=', 2), ', ', ''', ''')
                        ),
                        ''
                    )
                    FROM unnest(function.proconfig) AS setting
                ),
                ''
            )
            || format(
                E'\n    AS $%1$s$%2$s$%1$s$%3$s',
                CASE WHEN position('$' IN function.prosrc) > 0 THEN '_' ELSE '' END,
                function.prosrc,
                chr(59)
            ),
        'DROP FUNCTION ' || function.oid::regprocedure
    FROM pg_proc AS function
    JOIN pg_language AS language ON language.oid = function.prolang
    WHERE function.pronamespace = to_regnamespace('jobctl')
    UNION ALL
    SELECT
        'type ' || quote_ident(type.typname),
        'CREATE DOMAIN jobctl.' || quote_ident(type.typname) || ' AS',
        'CREATE DOMAIN jobctl.' || quote_ident(type.typname)
            || ' AS ' || format_type(type.typbasetype, type.typtypmod)
            || CASE WHEN type.typnotnull THEN ' NOT NULL' ELSE '' END
            || coalesce(' DEFAULT ' || type.typdefault, '')
            || (
                SELECT coalesce(
                    string_agg(
                        format(
                            E'\n\tCONSTRAINT %I %s',
                            fact.conname,
                            pg_get_constraintdef(fact.oid)
                        ),
                        ''
                        ORDER BY fact.conname
                    ),
                    ''
                )
                FROM pg_constraint AS fact
                WHERE fact.contypid = type.oid AND fact.contype = 'c'
            )
            || chr(59),
        'DROP TYPE jobctl.' || quote_ident(type.typname)
    FROM pg_type AS type
    WHERE type.typnamespace = to_regnamespace('jobctl') AND type.typtype NOT IN ('b', 'c')
    UNION ALL
    SELECT
        format('constraint %I of %s', fact.conname, relations.name),
        format('ADD CONSTRAINT %I ', fact.conname),
        format(
            E'ALTER TABLE ONLY jobctl.%s\n    ADD CONSTRAINT %I %s',
            relations.name,
            fact.conname,
            pg_get_constraintdef(fact.oid)
        ),
        format('ALTER TABLE jobctl.%s DROP CONSTRAINT %I', relations.name, fact.conname)
    FROM relations
    JOIN pg_constraint AS fact ON fact.conrelid = relations.oid
    WHERE fact.contype IN ('p', 'u', 'x', 'f')
    UNION ALL
    SELECT
        format('trigger %I on %s', trigger.tgname, relations.name),
        format('CREATE TRIGGER %I ', trigger.tgname),
        CASE trigger.tgenabled WHEN 'O' THEN pg_get_triggerdef(trigger.oid) || chr(59) END,
        format('DROP TRIGGER %I ON jobctl.%s', trigger.tgname, relations.name)
    FROM relations
    JOIN pg_trigger AS trigger ON trigger.tgrelid = relations.oid
    WHERE NOT trigger.tgisinternal
    UNION ALL
    SELECT
        format('rule %I on %s', rule.rulename, relations.name),
        NULL,
        NULL,
        format('DROP RULE %I ON jobctl.%s', rule.rulename, relations.name)
    FROM relations
    JOIN pg_rewrite AS rule ON rule.ev_class = relations.oid
    WHERE rule.rulename <> '_RETURN'
    UNION ALL
    SELECT
        format('policy %I on %s', policy.polname, relations.name),
        NULL,
        NULL,
        format('DROP POLICY %I ON jobctl.%s', policy.polname, relations.name)
    FROM relations
    JOIN pg_policy AS policy ON policy.polrelid = relations.oid
    UNION ALL
    SELECT
        format('table %s, a child of %s,', child.inhrelid::regclass, relations.name),
        NULL,
        NULL,
        format('ALTER TABLE %s NO INHERIT jobctl.%s', child.inhrelid::regclass, relations.name)
    FROM relations
    JOIN pg_inherits AS child ON child.inhparent = relations.oid
)
SELECT
    CASE WHEN position(definitions.head IN expected.text) > 0 THEN 'changed' ELSE 'foreign' END
        AS kind,
    definitions.object,
    CASE WHEN position(definitions.head IN expected.text) > 0 THEN '' ELSE definitions.statement END
        AS statement
FROM definitions
CROSS JOIN expected
WHERE coalesce(
    position(regexp_replace(definitions.text, '\mjob_\w+[.]', '', 'g') IN expected.text),
    0
) = 0
UNION ALL
SELECT 'missing', 'constraint ' || wanted[1], ''
FROM expected, regexp_matches(expected.text, 'ADD CONSTRAINT (\w+)', 'g') AS wanted
WHERE wanted[1] NOT IN (
    SELECT fact.conname FROM pg_constraint AS fact
    WHERE fact.connamespace = to_regnamespace('jobctl')
)
UNION ALL
SELECT
    'hidden',
    relations.name,
    'ALTER TABLE jobctl.' || relations.name || ' DISABLE ROW LEVEL SECURITY'
FROM relations
WHERE relations.has_row_security
UNION ALL
SELECT
    'event trigger',
    quote_ident(trigger.evtname),
    'DROP EVENT TRIGGER ' || quote_ident(trigger.evtname)
FROM pg_event_trigger AS trigger
WHERE trigger.evtenabled <> 'D'
    AND NOT EXISTS (
        SELECT FROM pg_depend AS extension
        WHERE extension.classid = 'pg_event_trigger'::regclass
            AND extension.objid = trigger.oid
            AND extension.deptype = 'e'
    )
ORDER BY 1, 2
