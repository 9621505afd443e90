-- Counts the runs that repeated calls of prune.sql would delete, by status.
-- $1  keep    $2  keep_dead: seconds after their end until runs are old, if no definition says it
-- A status without old runs has no row.
SELECT
    run.status,
    count(*) AS runs
FROM jobctl.job_runs AS run
LEFT JOIN jobctl.job_definitions AS definition ON definition.name = run.job_type
-- Makes the index scan shorter: no run is old before the shortest time of all definitions and
-- parameters.
WHERE run.finished_at < now() - least(
    make_interval(secs => least($1::float8, $2::float8)),
    (
        SELECT min(least(shortest.keep, shortest.keep_dead))
        FROM jobctl.job_definitions AS shortest
    )
)
    -- The conditions of prune.sql.
    AND greatest(run.created_at, run.finished_at) < now() - CASE run.status
        WHEN 'dead' THEN coalesce(definition.keep_dead, make_interval(secs => $2::float8))
        ELSE coalesce(definition.keep, make_interval(secs => $1::float8))
    END
    AND NOT EXISTS (SELECT FROM jobctl.awaited_runs AS awaited WHERE awaited.id = run.id)
GROUP BY run.status
