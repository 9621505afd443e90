-- Runs whose lease expired. recover.sql checks them again. And runs whose lease ends later than any
-- tick may ask for (`is_ahead`). shorten_leases.sql checks them again.
-- $1  limit    $2  rejected: ids of runs to skip
-- Zero rows: all leases are as a tick may have them.
-- In random order: if the database rejects many of these runs, each tick tries others first.
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
    -- What recover.sql recovers, so that no other lease is read.
    AND (lease.is_lost OR lease.is_ahead)
ORDER BY random()
LIMIT $1::bigint
