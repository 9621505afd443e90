-- Locks definitions that limit their runs and seem to have due runs, until the end of the
-- transaction. Then within_limits.sql counts running runs in its own, later snapshot. Skips
-- definitions that another claim has locked.
-- $1  queues, empty for all    $2  excluded_jobs    $3  excluded_kinds of definitions
-- $4  after: begin after the definition with this id
-- $5  only_run: only the definition of this run; NULL for any
-- A row per definition, its name, and whether it is `locked` now, or one row without a definition.
-- Each row names the last definition that this claim looked at, if there may be more. `rate_ahead`
-- is the name of a definition whose rate begins again, because the database's clock was ahead.
--
-- A claim looks at 1,000 definitions and locks 50. It looks at 100 runs of each: if none of them is
-- due, another may be.
WITH looked_at AS MATERIALIZED (
    SELECT definition.*
    FROM jobctl.job_definitions AS definition
    WHERE definition.is_limited AND definition.id > $4::bigint
        AND (
            $5::bigint IS NULL
            OR definition.name = (
                SELECT run.job_type
                FROM jobctl.job_runs AS run
                WHERE run.id = $5::bigint
            )
        )
    ORDER BY definition.id
    LIMIT 1000
),
due AS MATERIALIZED (
    SELECT definition.id, definition.name
    FROM looked_at AS definition
    WHERE definition.name <> ALL ($2::text[])
        AND definition.kind <> ALL ($3::text[])
        -- A rate that is used up costs no lock and no count. No start can use it up for longer than
        -- its interval.
        AND coalesce(
            definition.rate_next_at - (definition.most_at_once - 1) * definition.rate_interval
                NOT BETWEEN now() AND now() + definition.rate_interval + interval '1 minute',
            true
        )
        AND EXISTS (
            SELECT FROM (
                SELECT
                    run.run_at <= now()
                    AND (cardinality($1::text[]) = 0 OR run.queue = ANY ($1::text[])) AS is_due,
                    row_number() OVER () AS place
                FROM jobctl.job_runs AS run
                WHERE run.job_type = definition.name
                    AND run.job_type NOT IN ('shell', 'http')
                    AND run.status IN ('queued', 'failed')
                LIMIT 100
            ) AS first
            WHERE first.is_due OR first.place = 100
        )
    ORDER BY definition.id
    LIMIT 50
),
locked AS MATERIALIZED (
    SELECT
        definition.id,
        definition.rate_next_at - (definition.most_at_once - 1) * definition.rate_interval
            > now() + definition.rate_interval + interval '1 minute' AS is_ahead
    FROM jobctl.job_definitions AS definition
    WHERE definition.id = ANY (ARRAY(SELECT due.id FROM due))
    FOR NO KEY UPDATE SKIP LOCKED
),
begun_again AS (
    UPDATE jobctl.job_definitions AS definition
    SET rate_next_at = NULL
    WHERE definition.id = ANY (ARRAY(SELECT locked.id FROM locked WHERE locked.is_ahead))
    RETURNING definition.id, definition.name
)
SELECT
    due.id,
    due.name,
    locked.id IS NOT NULL AS locked,
    begun_again.name AS rate_ahead,
    cut.last
FROM (
    SELECT
        CASE
            WHEN (SELECT count(*) FROM due) = 50 THEN (SELECT max(due.id) FROM due)
            WHEN (SELECT count(*) FROM looked_at) = 1000 THEN (SELECT max(id) FROM looked_at)
        END AS last
) AS cut
LEFT JOIN due ON true
LEFT JOIN locked ON locked.id = due.id
LEFT JOIN begun_again ON begun_again.id = due.id
