-- Returns the statements that correct the privileges of the objects that a migration made, in
-- order:
--   1  Revoke everything. Default privileges may have granted any role rights on a new object, but
--      `jobctl grants` decides what a role may do.
--   2  Grant on a new function what the function of the same name had. A function with other
--      parameters is a new object.
--   3  Drop that former function.
-- $1  before: the objects before the migration, as numbers, see list_objects.sql
-- A row per statement.
WITH objects AS (
    SELECT
        object.name,
        object.function,
        object.owner,
        object.privileges,
        object.classid::bigint << 32 | object.objid::bigint <> ALL ($1::bigint[]) AS is_new
    FROM (
        SELECT
            'pg_namespace'::regclass::oid AS classid,
            oid AS objid,
            'SCHEMA jobctl' AS name,
            NULL AS function,
            nspowner AS owner,
            nspacl AS privileges
        FROM pg_namespace
        WHERE nspname = 'jobctl'
        UNION ALL
        SELECT
            'pg_class'::regclass,
            oid,
            CASE relkind WHEN 'S' THEN 'SEQUENCE ' ELSE 'TABLE ' END || oid::regclass,
            NULL,
            relowner,
            relacl
        FROM pg_class
        WHERE relnamespace = 'jobctl'::regnamespace
            AND relkind IN ('r', 'v', 'S')
        UNION ALL
        SELECT 'pg_proc'::regclass, oid, 'ROUTINE ' || oid::regprocedure, proname, proowner, proacl
        FROM pg_proc
        WHERE pronamespace = 'jobctl'::regnamespace
        UNION ALL
        -- Only domains: each table also has a type.
        SELECT
            'pg_type'::regclass,
            oid,
            'TYPE ' || oid::regtype,
            NULL,
            typowner,
            typacl
        FROM pg_type
        WHERE typnamespace = 'jobctl'::regnamespace
            AND typtype = 'd'
    ) AS object
),
statements (step, statement) AS (
    -- PUBLIC always, because a function without an access list has the default one.
    SELECT 1, format('REVOKE ALL ON %s FROM %s', new.name, grantee.name)
    FROM objects AS new
    CROSS JOIN LATERAL (
        SELECT 'PUBLIC'
        UNION
        SELECT acl.grantee::regrole::text
        FROM aclexplode(new.privileges) AS acl
        -- 0 is PUBLIC, which is there already.
        WHERE acl.grantee NOT IN (0, new.owner)
    ) AS grantee (name)
    WHERE new.is_new
    UNION ALL
    SELECT 2, format('GRANT EXECUTE ON %s TO %s', new.name, acl.grantee::regrole)
    FROM objects AS former
    JOIN objects AS new ON new.function = former.function AND new.is_new
    CROSS JOIN aclexplode(former.privileges) AS acl
    WHERE NOT former.is_new
        AND acl.grantee NOT IN (0, former.owner)
    UNION ALL
    SELECT 3, format('DROP %s', former.name)
    FROM objects AS former
    JOIN objects AS new ON new.function = former.function AND new.is_new
    WHERE NOT former.is_new
)
SELECT statement
FROM statements
ORDER BY step
