-- Finds pending runs that have expired. expire.sql checks them again.
-- $1  limit
-- Zero rows: no run has to be cancelled.
--
-- Takes random ones of the ten thousand that expired first: if the database rejects many of these
-- runs, each tick tries others first.
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
