-- Dead runs that are not settled, and runs that wait for another attempt after a failure: by job
-- and error type, the latest first, each group with its newest run.
-- $1  maximum number of groups
-- `total` counts all groups.
WITH troubled AS MATERIALIZED (
    SELECT
        run.id,
        run.status,
        run.job_type AS job,
        coalesce(run.error_type, '') AS error_type,
        run.finished_at AS ended_at
    FROM jobctl.job_runs AS run
    WHERE run.status = 'dead'
        AND run.settled_at IS NULL
    UNION ALL
    SELECT
        run.id,
        run.status,
        run.job_type,
        coalesce(run.error_type, ''),
        coalesce(run.failed_at, run.updated_at)
    FROM jobctl.job_runs AS run
    WHERE run.status = 'failed'
),
alike AS (
    SELECT
        troubled.job,
        troubled.error_type,
        count(*) FILTER (WHERE troubled.status = 'dead') AS dead,
        count(*) FILTER (WHERE troubled.status = 'failed') AS failed,
        max(troubled.ended_at) AS ended_at,
        count(*) OVER () AS total
    FROM troubled
    GROUP BY troubled.job, troubled.error_type
    ORDER BY max(troubled.ended_at) DESC, troubled.job, troubled.error_type
    LIMIT $1::bigint
),
newest AS (
    SELECT job, error_type, max(troubled.id) AS id
    FROM alike
    JOIN troubled USING (job, error_type, ended_at)
    GROUP BY job, error_type
)
SELECT
    run.id,
    alike.job,
    left(alike.error_type, 100) AS error_type,
    left(run.last_error, 300) AS last_error,
    run.attempts,
    run.max_attempts,
    alike.ended_at,
    alike.dead,
    alike.failed,
    alike.total
FROM alike
JOIN newest USING (job, error_type)
JOIN jobctl.job_runs AS run
    ON run.id = newest.id
ORDER BY alike.ended_at DESC, alike.job, alike.error_type
