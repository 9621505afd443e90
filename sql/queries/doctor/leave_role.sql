-- Returns the role of this transaction, and sets the role back to the login. PostgreSQL shows the
-- details of a session, which session.sql reads, only to its login and to members of the login. A
-- role that ALTER ROLE ... SET role has set is usually not a member.
SELECT role.name
-- OFFSET 0 and the comparison make PostgreSQL read current_user before set_config changes it.
FROM (SELECT current_user::text AS name OFFSET 0) AS role
CROSS JOIN LATERAL set_config('role', CASE WHEN role.name <> '' THEN 'none' END, true)
