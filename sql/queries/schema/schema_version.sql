-- Lists the applied migrations. The table also has functions and views, which have no version. Zero
-- rows: the schema exists, but no migration has been applied.
-- The program itself finds the newest version and the earliest time: each tick plans this
-- statement, and an aggregate would make that a third slower.
SELECT version, applied_at
FROM jobctl.schema_migrations
WHERE version IS NOT NULL
