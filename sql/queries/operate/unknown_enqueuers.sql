-- Lists the roles that do not exist, but that `enqueuers` of these definitions name.
-- $1  names
-- A row per role, with the first and the number of its definitions.
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
