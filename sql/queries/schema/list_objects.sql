-- The schema and its objects that have privileges: catalog and oid in one number each.
SELECT object.classid::bigint << 32 | object.objid::bigint
FROM pg_namespace AS namespace
CROSS JOIN LATERAL (
    SELECT 'pg_namespace'::regclass::oid, namespace.oid
    UNION ALL
    SELECT depend.classid, depend.objid
    FROM pg_depend AS depend
    WHERE depend.refclassid = 'pg_namespace'::regclass
        AND depend.refobjid = namespace.oid
) AS object (classid, objid)
WHERE namespace.nspname = 'jobctl'
