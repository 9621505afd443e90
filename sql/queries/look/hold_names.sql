-- Lists the workers or the queues that a hold can name. Of the queues that only pending runs name,
-- checks just the given one, because reading all these runs would take long.
-- $1  scope    $2  name
SELECT known.name
FROM (
    SELECT 'worker' AS scope, worker.worker AS name
    FROM jobctl.job_workers AS worker
    UNION ALL
    SELECT 'queue', unnest(worker.queues)
    FROM jobctl.job_workers AS worker
    UNION ALL
    SELECT 'queue', definition.queue
    FROM jobctl.job_definitions AS definition
    UNION ALL
    SELECT 'queue', 'default'
    UNION ALL
    SELECT 'queue', given.name
    FROM (SELECT $2::text AS name) AS given
    WHERE EXISTS (
        SELECT FROM jobctl.job_runs AS run
        WHERE run.queue = given.name
            AND run.status IN ('queued', 'failed')
    )
) AS known
WHERE known.scope = $1::text
