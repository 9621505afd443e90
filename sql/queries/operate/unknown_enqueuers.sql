-- Lists the roles that `enqueuers` of these definitions name, but that do not exist.
-- $1  names
-- A row per role, with the first of its definitions and their number.
SELECT
    enqueuer.role,
    min(definition.name) AS job,
    count(*) AS jobs
FROM jobctl.job_definitions AS definition
CROSS JOIN LATERAL unnest(definition.enqueuers) AS enqueuer (role)
WHERE definition.name = ANY ($1::text[])
    AND to_regrole(quote_ident(enqueuer.role)) IS NULL
GROUP BY enqueuer.role
ORDER BY enqueuer.role
