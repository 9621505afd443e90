-- Lists the schema and its objects, for privileges.sql. Each object is one number: the oid of its
-- catalog in the upper 32 bits, and its own oid in the lower 32 bits.
SELECT object.classid::bigint << 32 | object.objid::bigint AS object
FROM pg_namespace AS namespace
CROSS JOIN LATERAL (
    SELECT 'pg_namespace'::regclass::oid AS classid, namespace.oid AS objid
    UNION ALL
    SELECT depend.classid, depend.objid
    FROM pg_depend AS depend
    WHERE depend.refclassid = 'pg_namespace'::regclass
        AND depend.refobjid = namespace.oid
) AS object
WHERE namespace.nspname = 'jobctl'
