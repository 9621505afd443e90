-- Returns whether the current role sees the sessions of other roles. One row.
SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') AS sees_all
