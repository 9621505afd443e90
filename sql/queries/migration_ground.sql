-- What a migration finds.
SELECT
    to_regnamespace('jobctl') IS NOT NULL AS has_schema,
    to_regclass('jobctl.schema_migrations') IS NOT NULL AS has_versions,
    current_setting('server_encoding') AS encoding
