-- The applied migrations; none: the schema is there but no migration has been applied. The program
-- takes the newest version and the earliest time: an aggregate would take a third longer to plan,
-- in each tick.
SELECT version, applied_at
FROM jobctl.schema_migrations
WHERE version IS NOT NULL
