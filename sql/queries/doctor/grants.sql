-- Finds grants and objects that weaken the role matrix. Reads only catalogs, which every role may
-- read.
-- $1  the GRANT statements of all roles of the matrix
-- A row per finding: `kind`, `name` (quoted for SQL) and `has`:
--  role: has a privilege, or may grant one, that the matrix gives to no role. PUBLIC must have none
--  member: belongs to predefined roles that can access all tables
--  trigger, rule: on this table, and not made by a migration
--  unseen: a table whose rows are hidden by row level security without a policy
-- Roles with the rights of the schema's owner are left out.
-- Zero rows: nothing weakens the matrix.
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
        relation.relname AS name,
        relation.relacl AS privileges,
        relation.relrowsecurity AS row_security,
        -- The matrix grants on ALL TABLES cover tables and views.
        CASE WHEN relation.relkind <> 'S' THEN 'ALL TABLES' END AS family
    FROM schema
    JOIN pg_class AS relation ON relation.relnamespace = schema.oid
),
matrix AS (
    SELECT
        privilege[1] AS privilege,
        listed[1] AS column_name,
        coalesce(object[1], object[2], 'SCHEMA') AS object
    FROM regexp_matches($1::text, 'GRANT (.*?)\sON\s(.*?)\sTO\s', 'g') AS statement,
        regexp_matches(statement[2], '(ALL TABLES)|jobctl[.](\w+)|SCHEMA jobctl', 'g') AS object,
        regexp_matches(statement[1], '([A-Z]+)(?:\s*[(]([^)]*)[)])?', 'g') AS privilege
    LEFT JOIN LATERAL regexp_matches(privilege[2], '\w+', 'g') AS listed ON true
),
granted AS (
    SELECT 'SCHEMA' AS object, NULL AS family, NULL AS column_name, schema.privileges
    FROM schema
    UNION ALL
    SELECT relations.name, relations.family, NULL, relations.privileges
    FROM relations
    UNION ALL
    SELECT relations.name, relations.family, attribute.attname, attribute.attacl
    FROM relations
    JOIN pg_attribute AS attribute
        ON attribute.attrelid = relations.oid AND NOT attribute.attisdropped
    UNION ALL
    -- The default without an ACL: every role may call a function.
    SELECT
        function.proname,
        NULL,
        NULL,
        coalesce(function.proacl, acldefault('f', function.proowner))
    FROM schema
    JOIN pg_proc AS function ON function.pronamespace = schema.oid
    UNION ALL
    -- Likewise every role may store values of a domain. Tables make types too.
    SELECT type.typname, NULL, NULL, coalesce(type.typacl, acldefault('T', type.typowner))
    FROM schema
    JOIN pg_type AS type ON type.typnamespace = schema.oid AND type.typtype = 'd'
),
beyond AS (
    SELECT
        acl.grantee,
        granted.object,
        string_agg(
            acl.privilege_type
                || coalesce(' (' || granted.column_name || ')', '')
                || CASE WHEN acl.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END,
            ', '
            ORDER BY acl.privilege_type, granted.column_name
        ) AS privileges
    FROM schema, granted, aclexplode(granted.privileges) AS acl
    WHERE
        CASE acl.grantee
            WHEN 0 THEN true
            ELSE NOT pg_has_role(acl.grantee, schema.owner, 'USAGE')
        END
        AND (
            acl.grantee = 0
            OR acl.is_grantable
            OR NOT EXISTS (
                SELECT FROM matrix
                WHERE matrix.privilege = acl.privilege_type
                    AND matrix.object IN (granted.object, granted.family)
                    AND (matrix.column_name IS NULL OR matrix.column_name = granted.column_name)
            )
        )
    GROUP BY acl.grantee, granted.object
)
SELECT
    'role' AS kind,
    CASE beyond.grantee WHEN 0 THEN 'PUBLIC' ELSE beyond.grantee::regrole::text END AS name,
    array_agg(
        beyond.privileges || ' on '
            || CASE beyond.object WHEN 'SCHEMA' THEN 'the schema' ELSE beyond.object END
        ORDER BY beyond.object
    ) AS has
FROM beyond
GROUP BY beyond.grantee
UNION ALL
SELECT
    'member',
    belongs.member::regrole::text,
    array_agg(quote_ident(predefined.rolname) ORDER BY predefined.rolname)
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
SELECT 'trigger', quote_ident(trigger.tgname), ARRAY[quote_ident(relations.name)]
FROM schema, relations
JOIN pg_trigger AS trigger ON trigger.tgrelid = relations.oid
JOIN pg_proc AS function ON function.oid = trigger.tgfoid
WHERE NOT trigger.tgisinternal AND function.pronamespace <> schema.oid
UNION ALL
SELECT 'rule', quote_ident(rule.rulename), ARRAY[quote_ident(relations.name)]
FROM relations
JOIN pg_rewrite AS rule ON rule.ev_class = relations.oid
WHERE rule.rulename <> '_RETURN'
UNION ALL
SELECT 'unseen', quote_ident(relations.name), '{}'
FROM relations
WHERE relations.row_security
    AND NOT EXISTS (SELECT FROM pg_policy AS policy WHERE policy.polrelid = relations.oid)
ORDER BY 1, 2
