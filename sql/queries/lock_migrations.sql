-- Asks for the one lock of all migrators, until the end of the transaction. Asked again and again by
-- who does not get it: a session that waits for an advisory lock holds a snapshot, for which a
-- concurrent index build would wait in turn.
SELECT pg_try_advisory_xact_lock(x'6a6f6263746c'::bigint) AS locked
