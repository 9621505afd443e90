-- Runs whose lease expired. recover.sql checks them again.
-- $1  limit    $2  rejected: ids of runs to skip
-- In random order: if the database rejects many of these runs, each tick tries others first.
SELECT
    run.id,
    run.job_type,
    run.locked_by AS worker,
    run.attempts AS attempt,
    run.max_attempts + run.uncounted_attempts AS max_attempts,
    run.uncounted_attempts,
    run.backoff
FROM jobctl.job_runs AS run
WHERE run.status = 'running'
    AND run.locked_until < now()
    AND run.id <> ALL ($2::bigint[])
    -- As in recover.sql.
    AND EXISTS (
        SELECT FROM jobctl.leases AS lease
        WHERE lease.id = run.id
            AND lease.is_lost
    )
ORDER BY random()
LIMIT $1::bigint
