-- Reads the properties of this session and its server. Needs no schema and no privilege. One row.
-- $1  role, which leave_role.sql has returned; only passed on
SELECT
    pg_backend_pid() AS pid,
    extract(epoch FROM now() - activity.backend_start)::float8 AS age,
    current_setting('server_version') AS server_version,
    ssl.ssl AS encrypted,
    ssl.version AS tls_version,
    $1::text AS role,
    current_database()::text AS database,
    current_setting('server_encoding') AS encoding,
    -- reset_val: the session's own time zone, because this transaction has set another one.
    (
        SELECT setting.reset_val FROM pg_settings AS setting
        WHERE setting.name = 'TimeZone'
    ) AS time_zone,
    pg_is_in_recovery() AS standby,
    current_setting('transaction_read_only')::boolean AS read_only,
    current_setting('default_transaction_isolation') AS isolation,
    current_setting('session_replication_role') AS replication_role,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('fsync')::boolean AS fsync,
    current_setting('full_page_writes')::boolean AS full_page_writes,
    current_setting('autovacuum')::boolean AND current_setting('track_counts')::boolean
        AS autovacuum
FROM pg_stat_activity AS activity
LEFT JOIN pg_stat_ssl AS ssl
    ON ssl.pid = activity.pid
WHERE activity.pid = pg_backend_pid()
