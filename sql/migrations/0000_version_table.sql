-- Where the versions are kept; created by whoever migrates a database first.
CREATE TABLE jobctl.schema_migrations (
    version integer PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
