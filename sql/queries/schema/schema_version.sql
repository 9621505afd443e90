-- The version of the schema. NULL: the schema is there but no migration has been applied.
SELECT max(version) AS version
FROM jobctl.schema_migrations
