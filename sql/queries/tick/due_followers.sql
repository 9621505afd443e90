-- Blocked runs that a tick must decide about, see decide_followers.sql.
-- $1  edges: how many rows of job_dependencies to read
-- $2  ended: only what waits for these runs; NULL for all
-- $3  rejected: blocked runs to leave out
-- A statement without `ended` begins at a random row: the rows of one role must not delay those of
-- others for long.
WITH range AS (
    SELECT
        min(waits.after_id)
            + floor(random() * (max(waits.after_id) - min(waits.after_id) + 1))::bigint AS start
    FROM jobctl.job_dependencies AS waits
    WHERE waits.state = 'due'
        AND $2::bigint[] IS NULL
),
due AS (
    (
        SELECT waits.run_id
        FROM range
        CROSS JOIN LATERAL (
            SELECT rows.run_id
            FROM jobctl.job_dependencies AS rows
            WHERE rows.state = 'due'
                AND rows.after_id >= range.start
                AND rows.run_id <> ALL ($3::bigint[])
            ORDER BY rows.after_id
            LIMIT $1::bigint
        ) AS waits
    )
    UNION ALL
    (
        SELECT waits.run_id
        FROM range
        CROSS JOIN LATERAL (
            SELECT rows.run_id
            FROM jobctl.job_dependencies AS rows
            WHERE rows.state = 'due'
                AND rows.after_id < range.start
                AND rows.run_id <> ALL ($3::bigint[])
            ORDER BY rows.after_id
            LIMIT $1::bigint
        ) AS waits
    )
    UNION ALL
    (
        SELECT waits.run_id
        FROM jobctl.job_dependencies AS waits
        WHERE waits.state = 'due'
            AND waits.after_id = ANY ($2::bigint[])
            AND waits.run_id <> ALL ($3::bigint[])
        LIMIT $1::bigint
    )
)
SELECT DISTINCT read.run_id
FROM (
    SELECT due.run_id
    FROM due
    LIMIT $1::bigint
) AS read
