-- A part of a job's dead runs, like old_runs.sql. That would read all runs between the two times if
-- dead ones are kept for a shorter time.
-- $1  job    $2  keep_dead: seconds after their end until runs are old, if no definition says it
-- $3  after    $4  limit
SELECT
    run.id,
    run.finished_at < kept.since AS is_old,
    run.created_at > kept.since AS is_young
FROM (
    SELECT
        now() - coalesce(
            (
                SELECT definition.keep_dead
                FROM jobctl.job_definitions AS definition
                WHERE definition.name = $1::text
            ),
            make_interval(secs => $2::float8)
        ) AS since
) AS kept
CROSS JOIN jobctl.job_runs AS run
WHERE run.job_type = $1::text
    AND run.status = 'dead'
    AND run.id > $3::bigint
ORDER BY run.id
LIMIT $4::bigint
