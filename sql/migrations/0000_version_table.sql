-- The applied migrations. The first migration of a database creates this table.
CREATE TABLE jobctl.schema_migrations (
    -- NULL: a function or view, whose row has the text that was applied last.
    version integer UNIQUE,
    name text PRIMARY KEY,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
