-- Locks the definitions that limit their runs and have due runs, until the end of the transaction.
-- Then within_limits.sql counts running runs in its own, later snapshot. Skips definitions that
-- another claim has locked.
-- $1  queues, empty for all    $2  excluded job types    $3  excluded kinds of definitions
-- A row per definition, and whether it is `locked` now.
WITH due AS MATERIALIZED (
    SELECT definition.id
    FROM jobctl.job_definitions AS definition
    WHERE definition.is_limited
        AND definition.name <> ALL ($2::text[])
        AND definition.kind <> ALL ($3::text[])
        -- A rate that is used up costs no lock and no count.
        AND coalesce(
            definition.rate_next_at - (definition.most_at_once - 1) * definition.rate_interval
                <= now(),
            true
        )
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
