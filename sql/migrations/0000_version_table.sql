-- The applied migrations. The first migration of a database creates this table.
CREATE TABLE jobctl.schema_migrations (
    version integer PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
