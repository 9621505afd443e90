-- The jobs that a report shows: what ran in the window, what runs or waits for a retry, and what has a
-- schedule and did not run. Those with trouble come first, then those with the most runs.
-- $1  start of the window    $2  at most so many
-- `jobs` counts them all.
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
    job,
    coalesce(finished.succeeded, 0) AS succeeded,
    coalesce(finished.dead, 0) AS dead,
    coalesce(finished.cancelled, 0) AS cancelled,
    coalesce(failed.failed, 0) AS failed,
    coalesce(running.running, 0) AS running,
    running.running_since,
    count(*) OVER () AS jobs
FROM finished
FULL JOIN running USING (job)
FULL JOIN failed USING (job)
FULL JOIN scheduled USING (job)
ORDER BY
    coalesce(finished.dead, 0) + coalesce(failed.failed, 0) > 0 DESC,
    coalesce(finished.succeeded, 0) + coalesce(finished.dead, 0) + coalesce(finished.cancelled, 0) DESC,
    job
LIMIT $2::bigint
