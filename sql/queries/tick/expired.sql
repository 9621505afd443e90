-- Finds pending runs that have expired. expire.sql checks them again.
-- $1  limit
-- Zero rows: no run has to be cancelled.
--
-- Chooses runs at random from the ten thousand that expired first. If the database rejects the
-- changes of many of them, each tick tries other runs first.
SELECT expired.id
FROM (
    SELECT run.id
    FROM jobctl.job_runs AS run
    WHERE run.expires_at <= now()
        AND run.status IN ('queued', 'failed')
    ORDER BY run.expires_at
    LIMIT 10000
) AS expired
ORDER BY random()
LIMIT $1::bigint
