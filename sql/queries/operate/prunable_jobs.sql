-- Lists the jobs that may have old runs: one of the job's first hundred runs was created long ago.
-- Finds the jobs by a loose index scan: each step of `job` reads the first entry of the index
-- job_runs_job after the previous job.
-- $1  keep    $2  keep_dead: seconds after their end until runs are old, if no definition says it
-- A row per job, with the seconds that its definition or the parameters say.
WITH RECURSIVE job AS (
    (
        SELECT run.job_type
        FROM jobctl.job_runs AS run
        WHERE run.status <> 'running'
        ORDER BY run.job_type
        LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT run.job_type
        FROM jobctl.job_runs AS run
        WHERE run.status <> 'running'
            AND run.job_type > job.job_type
        ORDER BY run.job_type
        LIMIT 1
    )
    FROM job
    WHERE job.job_type IS NOT NULL
)
SELECT
    job.job_type,
    extract(epoch FROM kept.other_runs)::float8 AS keep,
    extract(epoch FROM kept.dead_runs)::float8 AS keep_dead
FROM job
LEFT JOIN jobctl.job_definitions AS definition ON definition.name = job.job_type
CROSS JOIN LATERAL (
    SELECT
        coalesce(definition.keep, make_interval(secs => $1::float8)) AS other_runs,
        coalesce(definition.keep_dead, make_interval(secs => $2::float8)) AS dead_runs
) AS kept
CROSS JOIN LATERAL (
    SELECT min(first.created_at) AS created_at
    FROM (
        SELECT run.created_at
        FROM jobctl.job_runs AS run
        -- BETWEEN means `=` here. With `=`, the planner would drop job_type from ORDER BY. And with
        -- only the id in ORDER BY, it would read the whole history before the first run of a new
        -- job, instead of the index job_runs_job.
        WHERE run.job_type BETWEEN job.job_type AND job.job_type
            AND run.status <> 'running'
        ORDER BY run.job_type, run.id
        LIMIT 100
    ) AS first
) AS oldest
WHERE oldest.created_at < now() - least(kept.other_runs, kept.dead_runs)
ORDER BY job.job_type
