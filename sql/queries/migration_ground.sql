-- What a migration finds. `stranger` is something in the schema, by its name: the catalogue says of all that is in
-- a schema that it depends on it, whatever it is. Default privileges do so too, but go with it ('a').
SELECT
    to_regnamespace('jobctl') IS NOT NULL AS has_schema,
    to_regclass('jobctl.schema_migrations') IS NOT NULL AS has_versions,
    (
        SELECT min(object.type || ' ' || object.identity)
        FROM pg_depend, pg_identify_object(classid, objid, objsubid) AS object
        WHERE refclassid = 'pg_namespace'::regclass AND refobjid = to_regnamespace('jobctl') AND deptype = 'n'
    ) AS stranger,
    current_setting('server_encoding') AS encoding
