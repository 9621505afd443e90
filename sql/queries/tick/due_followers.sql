-- Finds blocked runs that a tick must decide about, because a predecessor has ended. See
-- decide_followers.sql.
-- $1  edges: how many rows of job_dependencies to read
-- $2  ended: only runs that wait for these runs; NULL for all
-- $3  rejected: blocked runs to leave out
-- Zero rows: no blocked run can be released or cancelled now.
--
-- Without `ended`, reads from a random place (`start`) to the end, and then from the beginning:
-- even if one role has thousands of rows, they do not delay those of other roles for long. With
-- `ended`, `start` is NULL, and only the last part of `due` finds rows.
WITH range AS (
    SELECT
        min(dependency.after_id)
            + floor(random() * (max(dependency.after_id) - min(dependency.after_id) + 1))::bigint
            AS start
    FROM jobctl.job_dependencies AS dependency
    WHERE dependency.state = 'due'
        AND $2::bigint[] IS NULL
),
due AS (
    (
        SELECT dependency.run_id
        FROM range
        CROSS JOIN LATERAL (
            SELECT edge.run_id
            FROM jobctl.job_dependencies AS edge
            WHERE edge.state = 'due'
                AND edge.after_id >= range.start
                AND edge.run_id <> ALL ($3::bigint[])
            ORDER BY edge.after_id
            LIMIT $1::bigint
        ) AS dependency
    )
    UNION ALL
    (
        SELECT dependency.run_id
        FROM range
        CROSS JOIN LATERAL (
            SELECT edge.run_id
            FROM jobctl.job_dependencies AS edge
            WHERE edge.state = 'due'
                AND edge.after_id < range.start
                AND edge.run_id <> ALL ($3::bigint[])
            ORDER BY edge.after_id
            LIMIT $1::bigint
        ) AS dependency
    )
    UNION ALL
    (
        SELECT dependency.run_id
        FROM jobctl.job_dependencies AS dependency
        WHERE dependency.state = 'due'
            AND dependency.after_id = ANY ($2::bigint[])
            AND dependency.run_id <> ALL ($3::bigint[])
        LIMIT $1::bigint
    )
)
SELECT DISTINCT read.run_id
FROM (
    SELECT due.run_id
    FROM due
    LIMIT $1::bigint
) AS read
