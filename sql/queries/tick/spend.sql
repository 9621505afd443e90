-- Counts started runs of limited definitions against their rates, and notes the share that was
-- claimed last. lock_limited.sql has locked these definitions in this transaction.
-- $1  started: claimed runs in the order of turns, see within_limits.sql
UPDATE jobctl.job_definitions AS definition
SET
    rate_next_at = greatest(definition.rate_next_at, now())
        + started.runs * definition.rate_interval,
    last_share = started.last_share
FROM (
    SELECT
        run.job_type,
        count(*) AS runs,
        (array_agg(run.share ORDER BY array_position($1::bigint[], run.id) DESC))[1] AS last_share
    FROM jobctl.job_runs AS run
    WHERE run.id = ANY ($1::bigint[])
    GROUP BY run.job_type
) AS started
WHERE definition.name = started.job_type
    AND (
        definition.rate IS NOT NULL
        OR definition.last_share IS DISTINCT FROM started.last_share
    )
