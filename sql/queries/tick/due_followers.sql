-- Runs whose followers a tick must decide about, see release_followers.sql.
-- $1  limit
-- In random order: if the database rejects many of them, each tick tries others first.
SELECT due.after_id
FROM (
    SELECT DISTINCT waits.after_id
    FROM jobctl.job_dependencies AS waits
    WHERE waits.state = 'due'
    LIMIT 10000
) AS due
ORDER BY random()
LIMIT $1::bigint
