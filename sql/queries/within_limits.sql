-- Of definitions that limit how many of their runs go at once, the due runs that are within the limit.
-- $1  definitions, locked by lock_limited.sql before this began: nobody else counts at the same time
-- $2  queues, empty for all
-- Zero rows: as many as may run do.
SELECT waiting.id
FROM jobctl.job_definitions AS definition
CROSS JOIN LATERAL (
    SELECT run.id
    FROM jobctl.job_runs AS run
    WHERE run.status IN ('queued', 'failed')
        AND run.job_type = definition.name
        AND run.job_type NOT IN ('shell', 'http')
        AND run.run_at <= now()
        AND (cardinality($2::text[]) = 0 OR run.queue = ANY ($2::text[]))
    ORDER BY run.priority, run.run_at, run.id
    LIMIT greatest(
        0,
        definition.most_running - (
            SELECT count(*)
            FROM jobctl.job_runs AS run
            WHERE run.status = 'running'
                AND run.job_type = definition.name
        )
    )
) AS waiting
WHERE definition.id = ANY ($1::bigint[])
