-- The bytes of WAL that the server has written so far. Fails on servers that hide them.
SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint AS bytes
