-- Lists the sessions, prepared transactions and replication slots that keep vacuum from removing
-- dead rows, the oldest snapshot first. Most roles do not see the sessions of other roles, see
-- sees_sessions.sql.
-- `held_for`: seconds since the begin of the transaction; NULL for a slot. `transactions`: how many
-- transactions began since then.
SELECT
    holder.kind,
    holder.name,
    holder.state,
    extract(epoch FROM now() - holder.since)::float8 AS held_for,
    holder.transactions
FROM (
    SELECT
        'session' AS kind,
        concat_ws(' ', activity.pid, nullif(activity.application_name, ''), 'of', activity.usename)
            AS name,
        activity.state,
        activity.xact_start AS since,
        greatest(age(activity.backend_xmin), age(activity.backend_xid)) AS transactions
    FROM pg_stat_activity AS activity
    WHERE activity.datname = current_database()
        AND activity.pid <> pg_backend_pid()
        AND activity.backend_type = 'client backend'
        AND coalesce(activity.backend_xmin, activity.backend_xid) IS NOT NULL
    UNION ALL
    SELECT
        'prepared transaction' AS kind,
        prepared.gid AS name,
        'prepared' AS state,
        prepared.prepared AS since,
        age(prepared.transaction) AS transactions
    FROM pg_prepared_xacts AS prepared
    WHERE prepared.database = current_database()
    UNION ALL
    SELECT
        'replication slot' AS kind,
        slot.slot_name AS name,
        CASE WHEN slot.active THEN 'active' ELSE 'inactive' END AS state,
        NULL AS since,
        age(slot.xmin) AS transactions
    FROM pg_replication_slots AS slot
    WHERE slot.xmin IS NOT NULL
) AS holder
ORDER BY holder.transactions DESC
