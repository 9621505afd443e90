-- Finds the followers of a run, which wait for it, or its predecessors, for which it waits. They
-- may wait directly or through other runs. Also finds runs if the wait is over, as long as the
-- follower exists.
-- $1  id    $2  followers: whether to find followers; else predecessors
-- $3  direct: whether to leave out runs that are related only through other runs
-- One row.
WITH RECURSIVE related (id) AS (
    SELECT $1::bigint
    UNION
    SELECT next.id
    FROM related
    CROSS JOIN LATERAL (
        SELECT dependency.run_id AS id
        FROM jobctl.job_dependencies AS dependency
        WHERE $2::boolean
            AND dependency.after_id = related.id
        UNION ALL
        SELECT dependency.after_id AS id
        FROM jobctl.job_dependencies AS dependency
        WHERE NOT $2::boolean
            AND dependency.run_id = related.id
    ) AS next
    WHERE NOT $3::boolean
        OR related.id = $1::bigint
)
SELECT ARRAY(
    SELECT related.id
    FROM related
    WHERE related.id <> $1::bigint
) AS ids
