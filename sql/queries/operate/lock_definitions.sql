-- Tries to get the lock of `apply`, until the end of the transaction. The caller tries again and
-- does not wait: a session that waits for an advisory lock holds a snapshot, and a concurrent index
-- build would wait for that snapshot. The number is `jobctm` in ASCII: one more than the number of
-- lock_migrations.sql.
SELECT pg_try_advisory_xact_lock(x'6a6f6263746d'::bigint) AS locked
