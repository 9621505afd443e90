-- The jobs that have runs, and how long they keep them. Jumps from job to job in job_runs_job.
-- A row per job; `keep` and `keep_dead` are in seconds, NULL for the default of the caller.
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
    extract(epoch FROM definition.keep)::float8 AS keep,
    extract(epoch FROM definition.keep_dead)::float8 AS keep_dead
FROM job
LEFT JOIN jobctl.job_definitions AS definition ON definition.name = job.job_type
WHERE job.job_type IS NOT NULL
ORDER BY job.job_type
