-- Returns the role of this transaction, and goes on as the login: the server shows a session only
-- to its login and the members of it. The role of ALTER ROLE ... SET role is not a member.
SELECT role.name
FROM (SELECT current_user::text AS name OFFSET 0) AS role
CROSS JOIN LATERAL set_config('role', CASE WHEN role.name <> '' THEN 'none' END, true)
