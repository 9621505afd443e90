-- What kind of session a new connection is, for target_session_attrs. Changes nothing; one row.
SELECT
    pg_catalog.pg_is_in_recovery() AS standby,
    pg_catalog.current_setting('transaction_read_only')::boolean AS read_only
