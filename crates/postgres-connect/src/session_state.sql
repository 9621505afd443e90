-- The properties of a session that target_session_attrs refers to. One row.
SELECT
    pg_catalog.pg_is_in_recovery() AS standby,
    pg_catalog.current_setting('transaction_read_only')::boolean AS read_only
