-- Lists the names that a hold can have: all workers, or the queues of workers and definitions and
-- the queue `default`.
-- $1  scope: worker or queue    $2  name: a queue that is listed, too, if any pending run is in it.
--     Queues that only pending runs have are not listed otherwise, because reading all these runs
--     would take long
SELECT known.name
FROM (
    SELECT 'worker' AS scope, worker.worker AS name
    FROM jobctl.job_workers AS worker
    UNION ALL
    SELECT 'queue' AS scope, unnest(worker.queues) AS name
    FROM jobctl.job_workers AS worker
    UNION ALL
    SELECT 'queue' AS scope, definition.queue AS name
    FROM jobctl.job_definitions AS definition
    UNION ALL
    SELECT 'queue' AS scope, 'default' AS name
    UNION ALL
    SELECT 'queue' AS scope, given.name
    FROM (SELECT $2::text AS name) AS given
    WHERE EXISTS (
        SELECT FROM jobctl.job_runs AS run
        WHERE run.queue = given.name
            AND run.status IN ('queued', 'failed')
    )
) AS known
WHERE known.scope = $1::text
