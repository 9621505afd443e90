-- The jobs that a report shows: with a run, a failed attempt or a dropped run in the window, with a
-- running or waiting run, with an enabled definition, or with a problem. Jobs with a problem come
-- first, then those with failures, then those with the most runs.
-- $1  from, the start of the window    $2  troubled: jobs with a problem    $3  limit
-- `total` counts all jobs. `dropped` is of the days of the window. `average` is the average run
-- time on the newest day with a success, `average_before` that on a day a week before, both in
-- seconds; NULL without such a day.
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
    SELECT
        run.job_type AS job,
        count(*) FILTER (WHERE run.status = 'queued') AS queued,
        count(*) FILTER (WHERE run.status = 'failed') AS failed
    FROM jobctl.job_runs AS run
    WHERE run.status IN ('queued', 'failed')
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
dropped AS (
    SELECT figures.job_type AS job, sum(figures.dropped)::bigint AS dropped
    FROM jobctl.job_figures AS figures
    WHERE figures.day >= ($1::timestamptz AT TIME ZONE 'UTC')::date
        AND figures.dropped > 0
    GROUP BY figures.job_type
),
defined AS (
    SELECT definition.name AS job
    FROM jobctl.job_definitions AS definition
    WHERE definition.enabled
),
troubled AS (
    SELECT DISTINCT job FROM unnest($2::text[]) AS job
),
shown AS (
    SELECT
        job AS name,
        coalesce(finished.succeeded, 0) AS succeeded,
        coalesce(finished.dead, 0) AS dead,
        coalesce(finished.cancelled, 0) AS cancelled,
        coalesce(dropped.dropped, 0) AS dropped,
        coalesce(waiting.queued, 0) AS queued,
        coalesce(waiting.failed, 0) AS failed,
        coalesce(running.running, 0) AS running,
        running.running_since,
        count(*) OVER () AS total,
        row_number() OVER (
            ORDER BY
                job = ANY ($2::text[]) DESC,
                coalesce(finished.dead, 0) + coalesce(waiting.failed, 0)
                    + coalesce(retried.failures, 0) > 0 DESC,
                coalesce(finished.succeeded + finished.dead + finished.cancelled, 0) DESC,
                coalesce(waiting.queued, 0) DESC,
                job
        ) AS place
    FROM finished
    FULL JOIN running USING (job)
    FULL JOIN waiting USING (job)
    FULL JOIN retried USING (job)
    FULL JOIN dropped USING (job)
    FULL JOIN defined USING (job)
    FULL JOIN troubled USING (job)
)
SELECT
    shown.*,
    newest.seconds AS average,
    older.seconds AS average_before
FROM shown
LEFT JOIN LATERAL (
    SELECT figures.day, figures.run_time_seconds / figures.succeeded AS seconds
    FROM jobctl.daily_figures AS figures
    WHERE figures.job_type = shown.name
        AND figures.succeeded > 0
    ORDER BY figures.day DESC
    LIMIT 1
) AS newest ON true
LEFT JOIN LATERAL (
    SELECT figures.run_time_seconds / figures.succeeded AS seconds
    FROM jobctl.daily_figures AS figures
    WHERE figures.job_type = shown.name
        AND figures.succeeded > 0
        -- A job may not run each day.
        AND figures.day BETWEEN newest.day - 13 AND newest.day - 7
    ORDER BY figures.day DESC
    LIMIT 1
) AS older ON true
WHERE shown.place <= $3::bigint
ORDER BY shown.place
