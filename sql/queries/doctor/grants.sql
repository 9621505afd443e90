-- Finds roles with more privileges than `jobctl grants` gives. Reads only catalogs, which every
-- role may read.
-- $1  matrix: the GRANT statements of each set (viewer, worker and so on), the viewer's first
-- A row per finding: the `name` of a role, quoted for SQL, and what it `has`, by `kind`:
--   role       privileges, or rights to grant them, that are in no set of the role. A role has a
--              set if it has all privileges of the set. It may also have a part of the viewer's
--              set. PUBLIC may have nothing
--   member     predefined roles that can access all tables, of which the role is a member
--   attribute  attributes that bypass the privileges of tables: REPLICATION copies the whole
--              server, and before version 16 CREATEROLE gives membership in the schema's owner.
--              Only of roles with a privilege in the schema
--   owner      the members of the schema's owner: each has all its rights. Superusers are left out
-- The kinds `role` and `member` leave out roles that have the rights of the schema's owner.
-- Zero rows: no role has more than the sets.
WITH schema AS (
    SELECT
        namespace.oid,
        namespace.nspowner AS owner,
        namespace.nspacl AS privileges
    FROM pg_namespace AS namespace
    WHERE namespace.nspname = 'jobctl'
),
relations AS (
    SELECT
        relation.oid,
        relation.relname::text AS name,
        relation.relacl AS privileges,
        -- A grant on ALL TABLES covers tables (r) and views (v).
        relation.relkind IN ('r', 'v') AS is_table
    FROM schema
    JOIN pg_class AS relation ON relation.relnamespace = schema.oid
),
-- The privileges of each set, read from its GRANT statements: a row per privilege of an object, or
-- of one column.
matrix AS MATERIALIZED (
    SELECT DISTINCT
        set.number,
        coalesce(relations.name, object[2], 'SCHEMA') AS object,
        privilege[1] AS privilege,
        listed[1] AS column_name
    FROM unnest($1::text[]) WITH ORDINALITY AS set (statements, number)
    -- statement[1]: the privileges. statement[2]: the objects.
    CROSS JOIN LATERAL
        regexp_matches(set.statements, 'GRANT (.*?)\sON\s(.*?)\sTO\s', 'g') AS statement
    -- object[1]: `ALL TABLES`. object[2]: the name of an object. Both NULL: the schema.
    CROSS JOIN LATERAL
        regexp_matches(statement[2], '(ALL TABLES) IN|jobctl[.](\w+)|^SCHEMA', 'g') AS object
    -- privilege[1]: its name, such as SELECT. privilege[2]: the columns, if it is limited to some.
    CROSS JOIN LATERAL
        regexp_matches(statement[1], '([A-Z]+)(?:\s*[(]([^)]*)[)])?', 'g') AS privilege
    LEFT JOIN LATERAL regexp_matches(privilege[2], '\w+', 'g') AS listed ON true
    LEFT JOIN relations ON object[1] = 'ALL TABLES' AND relations.is_table
),
-- The access list of each object, and of each column that has one.
granted AS (
    SELECT 'SCHEMA' AS object, NULL::text AS column_name, schema.privileges
    FROM schema
    UNION ALL
    SELECT relations.name AS object, NULL AS column_name, relations.privileges
    FROM relations
    UNION ALL
    SELECT
        relations.name AS object,
        attribute.attname AS column_name,
        attribute.attacl AS privileges
    FROM relations
    JOIN pg_attribute AS attribute
        ON attribute.attrelid = relations.oid AND NOT attribute.attisdropped
    UNION ALL
    -- A function without an access list has the default one: every role may call it.
    SELECT
        function.proname AS object,
        NULL AS column_name,
        coalesce(function.proacl, acldefault('f', function.proowner)) AS privileges
    FROM schema
    JOIN pg_proc AS function ON function.pronamespace = schema.oid
    UNION ALL
    -- By default, every role may store values of a domain (d). Other types are left out, because
    -- each table also has a type.
    SELECT
        type.typname AS object,
        NULL AS column_name,
        coalesce(type.typacl, acldefault('T', type.typowner)) AS privileges
    FROM schema
    JOIN pg_type AS type ON type.typnamespace = schema.oid AND type.typtype = 'd'
    UNION ALL
    SELECT
        'objects of later migrations' AS object,
        NULL AS column_name,
        later.defaclacl AS privileges
    FROM schema
    JOIN pg_default_acl AS later ON later.defaclnamespace = schema.oid
),
-- The privileges that roles have, except roles with the rights of the schema's owner. The grantee 0
-- is PUBLIC.
held AS MATERIALIZED (
    SELECT
        acl.grantee,
        granted.object,
        granted.column_name,
        acl.privilege_type AS privilege,
        acl.is_grantable
    FROM schema, granted, aclexplode(granted.privileges) AS acl
    WHERE CASE acl.grantee
        WHEN 0 THEN true
        ELSE NOT pg_has_role(acl.grantee, schema.owner, 'USAGE')
    END
),
-- The sets of which a role has all privileges: as many of the rows of `matrix` as the set has.
complete AS (
    SELECT held.grantee, matrix.number
    FROM matrix
    JOIN held ON held.object = matrix.object AND held.privilege = matrix.privilege
    WHERE held.column_name IS NULL OR held.column_name = matrix.column_name
    GROUP BY held.grantee, matrix.number
    HAVING count(DISTINCT matrix) = (
        SELECT count(*) FROM matrix AS other WHERE other.number = matrix.number
    )
),
-- The privileges that a role may have: those of its sets, and of the viewer's set, number 1.
allowed AS (
    SELECT complete.grantee, matrix.object, matrix.privilege, matrix.column_name
    FROM complete
    JOIN matrix ON matrix.number = complete.number
    UNION
    SELECT held.grantee, matrix.object, matrix.privilege, matrix.column_name
    FROM held
    JOIN matrix ON matrix.number = 1 AND held.grantee <> 0
),
-- The privileges that a role has and may not have, joined to one text for each object.
excess AS (
    SELECT
        held.grantee,
        held.object,
        string_agg(
            held.privilege
                || coalesce(' (' || held.column_name || ')', '')
                || CASE WHEN held.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END,
            ', '
            ORDER BY held.privilege, held.column_name
        ) AS privileges
    FROM held
    WHERE held.is_grantable
        OR NOT EXISTS (
            SELECT FROM allowed
            WHERE allowed.grantee = held.grantee
                AND allowed.object = held.object
                AND allowed.privilege = held.privilege
                AND (allowed.column_name IS NULL OR allowed.column_name = held.column_name)
        )
    GROUP BY held.grantee, held.object
)
SELECT
    'role' AS kind,
    CASE excess.grantee WHEN 0 THEN 'PUBLIC' ELSE excess.grantee::regrole::text END AS name,
    array_agg(
        excess.privileges || ' on '
            || CASE excess.object WHEN 'SCHEMA' THEN 'the schema' ELSE excess.object END
        ORDER BY excess.object
    ) AS has
FROM excess
GROUP BY excess.grantee
UNION ALL
SELECT
    'member' AS kind,
    belongs.member::regrole::text AS name,
    array_agg(quote_ident(predefined.rolname) ORDER BY predefined.rolname) AS has
FROM schema, pg_auth_members AS belongs
JOIN pg_roles AS predefined ON predefined.oid = belongs.roleid
WHERE predefined.rolname IN (
        'pg_execute_server_program',
        'pg_maintain',
        'pg_read_all_data',
        'pg_read_server_files',
        'pg_write_all_data',
        'pg_write_server_files'
    )
    AND NOT pg_has_role(belongs.member, schema.owner, 'USAGE')
GROUP BY belongs.member
UNION ALL
SELECT
    'attribute' AS kind,
    quote_ident(able.rolname) AS name,
    set_attributes.names AS has
FROM pg_roles AS able
CROSS JOIN LATERAL (
    SELECT array_agg(attribute.name ORDER BY attribute.name) AS names
    FROM (
        VALUES
            (
                'CREATEROLE',
                able.rolcreaterole AND current_setting('server_version_num')::integer < 160000
            ),
            ('REPLICATION', able.rolreplication)
    ) AS attribute (name, is_set)
    WHERE attribute.is_set
) AS set_attributes
WHERE set_attributes.names IS NOT NULL
    AND NOT able.rolsuper
    AND EXISTS (SELECT FROM held WHERE held.grantee = able.oid)
UNION ALL
SELECT
    'owner' AS kind,
    schema.owner::regrole::text AS name,
    array_agg(quote_ident(member.rolname) ORDER BY member.rolname) AS has
FROM schema, pg_roles AS member
WHERE member.oid <> schema.owner
    AND NOT member.rolsuper
    AND pg_has_role(member.oid, schema.owner, 'MEMBER')
GROUP BY schema.owner
ORDER BY kind, name
