-- Returns how many bytes of WAL the server has written so far. Fails on servers that hide this.
SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint AS bytes
