-- The jobs that a report shows: with a run in the window, with a running run or one that waits for
-- a retry, or with a schedule. Jobs with trouble come first, then those with the most runs.
-- $1  start of the window    $2  maximum number
-- `total` counts all jobs.
WITH finished AS (
    SELECT
        run.job_type AS job,
        count(*) FILTER (WHERE run.status = 'succeeded') AS succeeded,
        count(*) FILTER (WHERE run.status = 'dead') AS dead,
        count(*) FILTER (WHERE run.status = 'cancelled') AS cancelled
    FROM jobctl.job_runs AS run
    WHERE run.finished_at >= $1::timestamptz
    GROUP BY run.job_type
),
running AS (
    SELECT run.job_type AS job, count(*) AS running, min(run.started_at) AS running_since
    FROM jobctl.job_runs AS run
    WHERE run.status = 'running'
    GROUP BY run.job_type
),
failed AS (
    SELECT run.job_type AS job, count(*) AS failed
    FROM jobctl.job_runs AS run
    WHERE run.status = 'failed'
    GROUP BY run.job_type
),
scheduled AS (
    SELECT definition.name AS job
    FROM jobctl.job_definitions AS definition
    WHERE definition.enabled
        AND definition.schedule IS NOT NULL
)
SELECT
    job AS name,
    coalesce(finished.succeeded, 0) AS succeeded,
    coalesce(finished.dead, 0) AS dead,
    coalesce(finished.cancelled, 0) AS cancelled,
    coalesce(failed.failed, 0) AS failed,
    coalesce(running.running, 0) AS running,
    running.running_since,
    count(*) OVER () AS total
FROM finished
FULL JOIN running USING (job)
FULL JOIN failed USING (job)
FULL JOIN scheduled USING (job)
ORDER BY
    coalesce(finished.dead, 0) + coalesce(failed.failed, 0) > 0 DESC,
    coalesce(finished.succeeded + finished.dead + finished.cancelled, 0) DESC,
    job
LIMIT $2::bigint
