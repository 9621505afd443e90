-- Finds running runs whose leases have expired, for recover.sql, and running runs whose leases end
-- later than any tick may ask for (`is_ahead`), for shorten_leases.sql.
-- $1  limit    $2  rejected: ids of runs to skip
-- Zero rows: no lease has to be recovered or shortened.
--
-- In random order: if the database rejects the changes of many of these runs, each tick tries other
-- runs first.
SELECT
    run.id,
    run.job_type,
    run.locked_by AS worker,
    run.attempts AS attempt,
    run.max_attempts + run.uncounted_attempts AS max_attempts,
    run.uncounted_attempts,
    run.backoff,
    lease.is_ahead
FROM jobctl.job_runs AS run
JOIN jobctl.leases AS lease ON lease.id = run.id
WHERE run.status = 'running'
    AND run.id <> ALL ($2::bigint[])
    -- recover.sql and shorten_leases.sql check these conditions again.
    AND (lease.is_lost OR lease.is_ahead)
ORDER BY random()
LIMIT $1::bigint
