-- Compares the objects of the schema with those that `migrate` makes. Reads only catalogs, which
-- every role may read.
-- $1  definitions: docs/schema.sql, as pg_dump writes it
-- A row per difference: its `kind`, the `object`, and the `statement` that removes it:
--   changed, missing  an object of jobctl that differs or does not exist. The statement is empty
--   foreign           an object that is not of jobctl. Indexes that only make queries faster are
--                     left out
--   hidden            a table with row level security: sessions to which it applies fail
--   event trigger     an event trigger: it can run code in `migrate`. Event triggers of extensions
--                     are left out
-- Zero rows: the schema is as the migrations made it.
--
-- plain_texts.sql must run first in the transaction, so that PostgreSQL writes names and values as
-- in docs/schema.sql. chr(59) is a semicolon: a test forbids semicolons in query files, because
-- each file has one statement.
WITH expected AS MATERIALIZED (
    -- Removes the names of tables before columns (`job_runs.id`), here and from the texts below:
    -- only before version 16, PostgreSQL writes them in views.
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
-- The lines of CREATE TABLE: the columns in their order, then the CHECK constraints by name.
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
        constraints.conrelid AS oid,
        -- The largest smallint: constraints come after all columns.
        32767 AS number,
        constraints.conname AS name,
        'CONSTRAINT ' || quote_ident(constraints.conname) || ' '
            || pg_get_constraintdef(constraints.oid) AS line
    FROM relations
    JOIN pg_constraint AS constraints ON constraints.conrelid = relations.oid
    WHERE constraints.contype = 'c'
),
-- The objects of the schema:
--   head       how the text of the object begins in docs/schema.sql. If `expected` does not contain
--              it, the object is foreign. NULL: jobctl has no objects of this kind
--   text       the object as pg_dump writes it. If `expected` does not contain it, the object has
--              changed. NULL: the object has a property that no object of jobctl has
--   statement  the statement that drops the object
definitions AS (
    SELECT
        'table ' || relations.name AS object,
        'CREATE TABLE jobctl.' || relations.name || ' (' AS head,
        -- NULL for a table that is not permanent (p).
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
        'view ' || relations.name AS object,
        'CREATE VIEW jobctl.' || relations.name || ' AS' AS head,
        -- NULL for a view with options.
        CASE WHEN relations.options IS NULL THEN 'CREATE VIEW jobctl.' END
            || relations.name || E' AS\n' || pg_get_viewdef(relations.oid) AS text,
        'DROP VIEW jobctl.' || relations.name AS statement
    FROM relations
    WHERE relations.kind = 'v'
    UNION ALL
    SELECT
        'index ' || relations.name AS object,
        'INDEX ' || relations.name || ' ON ' AS head,
        pg_get_indexdef(relations.oid) || chr(59) AS text,
        'DROP INDEX jobctl.' || relations.name AS statement
    FROM relations
    JOIN pg_index AS index ON index.indexrelid = relations.oid
    CROSS JOIN expected
    -- The index of a constraint is compared with the constraint.
    WHERE NOT EXISTS (
        SELECT FROM pg_constraint AS constraints
        WHERE constraints.conindid = relations.oid
    )
        -- Other foreign indexes only make queries faster.
        AND (
            index.indisunique
            OR index.indexprs IS NOT NULL
            OR index.indpred IS NOT NULL
            OR position('INDEX ' || relations.name || ' ON ' IN expected.text) > 0
        )
    UNION ALL
    SELECT
        'sequence ' || relations.name AS object,
        'SEQUENCE NAME jobctl.' || relations.name AS head,
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
        ) AS text,
        format(
            'ALTER TABLE %s ALTER COLUMN %I DROP IDENTITY',
            owned.refobjid::regclass,
            attribute.attname
        ) AS statement
    FROM relations
    JOIN pg_sequence AS sequence ON sequence.seqrelid = relations.oid
    -- Only the sequence of an identity column depends internally (i) on its column.
    JOIN pg_depend AS owned ON owned.objid = relations.oid AND owned.deptype = 'i'
    JOIN pg_attribute AS attribute
        ON attribute.attrelid = owned.refobjid AND attribute.attnum = owned.refobjsubid
    UNION ALL
    -- Kinds of relations that jobctl never creates, such as materialized views, and sequences that
    -- are not of an identity column. pg_identify_object returns the kind, as DROP names it.
    SELECT
        identified.type || ' ' || relations.name AS object,
        NULL AS head,
        NULL AS text,
        'DROP ' || upper(identified.type COLLATE "C") || ' jobctl.' || relations.name AS statement
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
        'function ' || quote_ident(function.proname) AS object,
        'CREATE FUNCTION jobctl.' || quote_ident(function.proname) || '(' AS head,
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
            -- The settings of the function. proconfig has `search_path=pg_catalog, pg_temp`, for
            -- which pg_dump writes `SET search_path TO 'pg_catalog', 'pg_temp'`.
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
            -- pg_dump writes $_$ around a body that contains a $, and $$ around other bodies.
            || format(
                E'\n    AS $%1$s$%2$s$%1$s$%3$s',
                CASE WHEN position('$' IN function.prosrc) > 0 THEN '_' ELSE '' END,
                function.prosrc,
                chr(59)
            ) AS text,
        'DROP FUNCTION ' || function.oid::regprocedure AS statement
    FROM pg_proc AS function
    JOIN pg_language AS language ON language.oid = function.prolang
    WHERE function.pronamespace = to_regnamespace('jobctl')
    UNION ALL
    SELECT
        'type ' || quote_ident(type.typname) AS object,
        'CREATE DOMAIN jobctl.' || quote_ident(type.typname) || ' AS' AS head,
        'CREATE DOMAIN jobctl.' || quote_ident(type.typname)
            || ' AS ' || format_type(type.typbasetype, type.typtypmod)
            || CASE WHEN type.typnotnull THEN ' NOT NULL' ELSE '' END
            || coalesce(' DEFAULT ' || type.typdefault, '')
            || (
                SELECT coalesce(
                    string_agg(
                        format(
                            E'\n\tCONSTRAINT %I %s',
                            constraints.conname,
                            pg_get_constraintdef(constraints.oid)
                        ),
                        ''
                        ORDER BY constraints.conname
                    ),
                    ''
                )
                FROM pg_constraint AS constraints
                WHERE constraints.contypid = type.oid AND constraints.contype = 'c'
            )
            || chr(59) AS text,
        'DROP TYPE jobctl.' || quote_ident(type.typname) AS statement
    FROM pg_type AS type
    -- Leaves out array types (b) and the row types of relations (c).
    WHERE type.typnamespace = to_regnamespace('jobctl') AND type.typtype NOT IN ('b', 'c')
    UNION ALL
    SELECT
        format('constraint %I of %s', constraints.conname, relations.name) AS object,
        format('ADD CONSTRAINT %I ', constraints.conname) AS head,
        format(
            E'ALTER TABLE ONLY jobctl.%s\n    ADD CONSTRAINT %I %s',
            relations.name,
            constraints.conname,
            pg_get_constraintdef(constraints.oid)
        ) AS text,
        format('ALTER TABLE jobctl.%s DROP CONSTRAINT %I', relations.name, constraints.conname)
            AS statement
    FROM relations
    JOIN pg_constraint AS constraints ON constraints.conrelid = relations.oid
    -- Primary keys, unique and exclusion constraints, and foreign keys.
    WHERE constraints.contype IN ('p', 'u', 'x', 'f')
    UNION ALL
    SELECT
        format('trigger %I on %s', trigger.tgname, relations.name) AS object,
        format('CREATE TRIGGER %I ', trigger.tgname) AS head,
        -- NULL for a trigger that is not enabled as by default (O).
        CASE trigger.tgenabled WHEN 'O' THEN pg_get_triggerdef(trigger.oid) || chr(59) END AS text,
        format('DROP TRIGGER %I ON jobctl.%s', trigger.tgname, relations.name) AS statement
    FROM relations
    JOIN pg_trigger AS trigger ON trigger.tgrelid = relations.oid
    WHERE NOT trigger.tgisinternal
    UNION ALL
    SELECT
        format('rule %I on %s', rule.rulename, relations.name) AS object,
        NULL AS head,
        NULL AS text,
        format('DROP RULE %I ON jobctl.%s', rule.rulename, relations.name) AS statement
    FROM relations
    JOIN pg_rewrite AS rule ON rule.ev_class = relations.oid
    -- Each view has a rule of this name.
    WHERE rule.rulename <> '_RETURN'
    UNION ALL
    SELECT
        format('policy %I on %s', policy.polname, relations.name) AS object,
        NULL AS head,
        NULL AS text,
        format('DROP POLICY %I ON jobctl.%s', policy.polname, relations.name) AS statement
    FROM relations
    JOIN pg_policy AS policy ON policy.polrelid = relations.oid
    UNION ALL
    SELECT
        format('table %s, a child of %s,', child.inhrelid::regclass, relations.name) AS object,
        NULL AS head,
        NULL AS text,
        format('ALTER TABLE %s NO INHERIT jobctl.%s', child.inhrelid::regclass, relations.name)
            AS statement
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
-- Only constraints: list_migrations.sql finds missing tables, views, functions and triggers, and
-- indexes.sql finds missing indexes.
SELECT 'missing' AS kind, 'constraint ' || wanted[1] AS object, '' AS statement
FROM expected, regexp_matches(expected.text, 'ADD CONSTRAINT (\w+)', 'g') AS wanted
WHERE wanted[1] NOT IN (
    SELECT constraints.conname FROM pg_constraint AS constraints
    WHERE constraints.connamespace = to_regnamespace('jobctl')
)
UNION ALL
SELECT
    'hidden' AS kind,
    relations.name AS object,
    'ALTER TABLE jobctl.' || relations.name || ' DISABLE ROW LEVEL SECURITY' AS statement
FROM relations
WHERE relations.has_row_security
UNION ALL
SELECT
    'event trigger' AS kind,
    quote_ident(trigger.evtname) AS object,
    'DROP EVENT TRIGGER ' || quote_ident(trigger.evtname) AS statement
FROM pg_event_trigger AS trigger
-- Disabled ones (D) do nothing.
WHERE trigger.evtenabled <> 'D'
    AND NOT EXISTS (
        SELECT FROM pg_depend AS extension
        WHERE extension.classid = 'pg_event_trigger'::regclass
            AND extension.objid = trigger.oid
            AND extension.deptype = 'e'
    )
ORDER BY kind, object
