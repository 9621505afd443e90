-- Of definitions that limit how many of their runs go at once, the due runs that are within the limit,
-- locked. One that somebody has locked is passed over.
-- $1  definitions, locked by lock_limited.sql before this began: nobody else counts at the same time
-- $2  queues, empty for all    $3  at most so many of each    $4  ids of runs to leave out
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
        AND run.id <> ALL ($4::bigint[])
        AND (cardinality($2::text[]) = 0 OR run.queue = ANY ($2::text[]))
    ORDER BY run.priority, run.run_at, run.id
    LIMIT least(
        $3::integer,
        greatest(
            0,
            definition.most_running - (
                SELECT count(*)
                FROM jobctl.job_runs AS run
                WHERE run.status = 'running'
                    AND run.job_type = definition.name
            )
        )
    )
    FOR NO KEY UPDATE SKIP LOCKED
) AS waiting
WHERE definition.id = ANY ($1::bigint[])
