-- Finds blocked runs that a tick must decide about, because a predecessor has ended. See
-- decide_followers.sql.
-- $1  edges: how many rows of job_dependencies to read
-- $2  ended: only runs that wait for these runs; NULL for all
-- $3  rejected: blocked runs to leave out
-- Zero rows: no blocked run can be released or cancelled now.
--
-- Without `ended`, reads the rows by the ids of their predecessors, from a random id (`start`) to
-- the end, and then from the beginning. So thousands of rows of one role do not delay the rows of
-- other roles for long.
WITH random_id AS (
    SELECT
        min(dependency.after_id)
            + floor(random() * (max(dependency.after_id) - min(dependency.after_id) + 1))::bigint
            AS start
    FROM jobctl.job_dependencies AS dependency
    WHERE dependency.state = 'due'
        -- With `ended`, `start` is NULL, and the first two parts of `due` find no row.
        AND $2::bigint[] IS NULL
),
due AS (
    -- From `start` to the end.
    (
        SELECT dependency.run_id
        FROM random_id
        CROSS JOIN LATERAL (
            SELECT edge.run_id
            FROM jobctl.job_dependencies AS edge
            WHERE edge.state = 'due'
                AND edge.after_id >= random_id.start
                AND edge.run_id <> ALL ($3::bigint[])
            ORDER BY edge.after_id
            LIMIT $1::bigint
        ) AS dependency
    )
    UNION ALL
    -- From the beginning to `start`.
    (
        SELECT dependency.run_id
        FROM random_id
        CROSS JOIN LATERAL (
            SELECT edge.run_id
            FROM jobctl.job_dependencies AS edge
            WHERE edge.state = 'due'
                AND edge.after_id < random_id.start
                AND edge.run_id <> ALL ($3::bigint[])
            ORDER BY edge.after_id
            LIMIT $1::bigint
        ) AS dependency
    )
    UNION ALL
    -- With `ended`: only the rows of these runs.
    (
        SELECT dependency.run_id
        FROM jobctl.job_dependencies AS dependency
        WHERE dependency.state = 'due'
            AND dependency.after_id = ANY ($2::bigint[])
            AND dependency.run_id <> ALL ($3::bigint[])
        LIMIT $1::bigint
    )
)
SELECT DISTINCT first.run_id
FROM (
    -- Each part may have as many rows, and a run may have several.
    SELECT due.run_id
    FROM due
    LIMIT $1::bigint
) AS first
