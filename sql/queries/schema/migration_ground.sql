-- Reads the state of the schema before a migration. One row, even without the schema:
--   has_versions   whether the schema has the table schema_migrations
--   role           the current role
--   owner          the owner of the schema
--   is_trusted     whether the current role has the rights of that owner. A superuser has the
--                  rights of every role, but trusts only another superuser, because code of the
--                  owner would run with the superuser's rights
--   creators       roles that may create objects in the schema without the rights of its owner
--   strangers      objects whose owner lacks the rights of the schema's owner, or is a superuser
--                  although the schema's owner is not. Before the first migration: all objects in
--                  the schema
--   missing_grant  the statement that lets the current role create the schema
--
-- A trigger's function runs with the rights of the role that writes the table. So a trigger is a
-- stranger if the owner of its function lacks the rights of the schema's owner.
--
-- pg_depend lists the objects of a schema with deptype 'n'. Default privileges have deptype 'a' and
-- are left out: they are dropped with the schema.
WITH schema AS (
    SELECT
        namespace.oid,
        namespace.nspowner AS owner,
        namespace.nspacl AS privileges,
        EXISTS (
            SELECT FROM pg_class AS versions
            WHERE versions.relnamespace = namespace.oid AND versions.relname = 'schema_migrations'
        ) AS has_versions
    FROM pg_namespace AS namespace
    WHERE namespace.nspname = 'jobctl'
),
-- The roles that may own objects of the schema: they have the rights of its owner.
trusting AS (
    SELECT role.oid, role.rolname AS name
    FROM schema
    JOIN pg_roles AS owner ON owner.oid = schema.owner
    JOIN pg_roles AS role
        ON pg_has_role(role.oid, owner.oid, 'USAGE')
        AND (owner.rolsuper OR NOT role.rolsuper)
),
-- The objects in the schema, and the triggers on its tables, and whether they are strangers.
objects AS (
    SELECT
        object.classid,
        object.objid,
        object.objsubid,
        -- Objects of the role that initdb created (10) have no row in pg_shdepend.
        coalesce(owned.refobjid, 10) NOT IN (SELECT trusting.oid FROM trusting) AS is_strange
    FROM schema
    JOIN pg_depend AS object
        ON object.refclassid = 'pg_namespace'::regclass
        AND object.refobjid = schema.oid
        AND object.deptype = 'n'
    LEFT JOIN pg_shdepend AS owned
        ON owned.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND owned.classid = object.classid
        AND owned.objid = object.objid
        AND owned.deptype = 'o'
    UNION ALL
    SELECT
        'pg_trigger'::regclass AS classid,
        trigger.oid AS objid,
        0 AS objsubid,
        NOT pg_has_role(function.proowner, schema.owner, 'USAGE') AS is_strange
    FROM schema
    JOIN pg_class AS relation ON relation.relnamespace = schema.oid
    JOIN pg_trigger AS trigger ON trigger.tgrelid = relation.oid
    JOIN pg_proc AS function ON function.oid = trigger.tgfoid
)
SELECT
    schema.oid IS NOT NULL AS has_schema,
    coalesce(schema.has_versions, false) AS has_versions,
    current_user::text AS role,
    pg_get_userbyid(schema.owner)::text AS owner,
    schema.oid IS NULL OR current_user IN (SELECT trusting.name FROM trusting) AS is_trusted,
    ARRAY(
        SELECT
            CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END AS role
        FROM aclexplode(schema.privileges) AS acl
        WHERE acl.privilege_type = 'CREATE'
            -- The grantee 0 is PUBLIC.
            AND CASE acl.grantee
                WHEN 0 THEN true
                ELSE NOT pg_has_role(acl.grantee, schema.owner, 'USAGE')
            END
        ORDER BY role
    ) AS creators,
    ARRAY(
        SELECT identified.type || ' ' || identified.identity AS stranger
        FROM objects,
            pg_identify_object(objects.classid, objects.objid, objects.objsubid) AS identified
        WHERE objects.is_strange OR NOT schema.has_versions
        ORDER BY stranger
    ) AS strangers,
    current_setting('server_encoding') AS encoding,
    CASE
        WHEN schema.oid IS NULL AND NOT has_database_privilege(current_database(), 'CREATE')
            THEN format('GRANT CREATE ON DATABASE %I TO %I', current_database(), current_user)
    END AS missing_grant
FROM (SELECT) AS always
LEFT JOIN schema ON true
