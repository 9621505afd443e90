-- Tries to get the lock of `apply`, until the end of the transaction. The caller retries, see
-- lock_migrations.sql.
SELECT pg_try_advisory_xact_lock(x'6a6f6263746d'::bigint) AS locked
