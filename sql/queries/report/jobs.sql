-- The jobs that a report shows: with a run or a failed attempt in the window, with a running run or
-- one that waits for a retry, with a schedule, or with a problem. Jobs with a problem come first,
-- then those with failures, then those with the most runs.
-- $1  start of the window    $2  jobs with a problem    $3  maximum number
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
waiting AS (
    SELECT run.job_type AS job, count(*) AS failed
    FROM jobctl.job_runs AS run
    WHERE run.status = 'failed'
    GROUP BY run.job_type
),
retried AS (
    SELECT run.job_type AS job, count(*) AS failures
    FROM jobctl.job_attempts AS attempt
    JOIN jobctl.job_runs AS run
        ON run.id = attempt.run_id
    WHERE attempt.outcome IN ('failed', 'lease_expired')
        AND attempt.finished_at >= $1::timestamptz
    GROUP BY run.job_type
),
scheduled AS (
    SELECT definition.name AS job
    FROM jobctl.job_definitions AS definition
    WHERE definition.enabled
        AND definition.schedule IS NOT NULL
),
troubled AS (
    SELECT DISTINCT job FROM unnest($2::text[]) AS job
)
SELECT
    job AS name,
    coalesce(finished.succeeded, 0) AS succeeded,
    coalesce(finished.dead, 0) AS dead,
    coalesce(finished.cancelled, 0) AS cancelled,
    coalesce(waiting.failed, 0) AS failed,
    coalesce(running.running, 0) AS running,
    running.running_since,
    count(*) OVER () AS total
FROM finished
FULL JOIN running USING (job)
FULL JOIN waiting USING (job)
FULL JOIN retried USING (job)
FULL JOIN scheduled USING (job)
FULL JOIN troubled USING (job)
ORDER BY
    job = ANY ($2::text[]) DESC,
    coalesce(finished.dead, 0) + coalesce(waiting.failed, 0) + coalesce(retried.failures, 0) > 0
        DESC,
    coalesce(finished.succeeded + finished.dead + finished.cancelled, 0) DESC,
    job
LIMIT $3::bigint
