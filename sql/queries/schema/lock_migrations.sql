-- Tries to get the lock of all migrators, until the end of the transaction. The caller tries again
-- and does not wait: a session that waits for an advisory lock holds a snapshot, and a concurrent
-- index build would wait for that snapshot. The number is `jobctl` in ASCII.
SELECT pg_try_advisory_xact_lock(x'6a6f6263746c'::bigint) AS locked
