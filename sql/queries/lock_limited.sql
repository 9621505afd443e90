-- Locks the definitions that limit how many of their runs go at once and have runs due, until the end of
-- the transaction; within_limits.sql, with a snapshot of its own, then counts what runs. One that another
-- claim has locked is left to it.
-- $1  queues, empty for all
-- A row per definition, with whether it is `locked` now.
WITH due AS MATERIALIZED (
    SELECT definition.id
    FROM jobctl.job_definitions AS definition
    WHERE definition.most_running IS NOT NULL
        AND EXISTS (
            SELECT FROM jobctl.job_runs AS run
            WHERE run.job_type = definition.name
                AND run.job_type NOT IN ('shell', 'http')
                AND run.status IN ('queued', 'failed')
                AND run.run_at <= now()
                AND (cardinality($1::text[]) = 0 OR run.queue = ANY ($1::text[]))
        )
),
locked AS MATERIALIZED (
    SELECT definition.id
    FROM jobctl.job_definitions AS definition
    WHERE definition.id = ANY (ARRAY(SELECT due.id FROM due))
    FOR NO KEY UPDATE SKIP LOCKED
)
SELECT
    due.id,
    locked.id IS NOT NULL AS locked
FROM due
LEFT JOIN locked ON locked.id = due.id
