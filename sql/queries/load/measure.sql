-- Computes the figures of a load test from its runs that are not running. One row. Rates and wait
-- times are NULL if too few runs were enqueued or started.
WITH run AS (
    SELECT
        run.status,
        run.created_at,
        run.started_at,
        greatest(0, extract(epoch FROM run.started_at - run.run_at))::float8 AS wait_time
    FROM jobctl.job_runs AS run
    WHERE run.job_type = 'jobctl-load'
        AND run.status <> 'running'
),
-- The seconds from the first to the last enqueue and start; NULL if they are 0.
span AS (
    SELECT
        nullif(extract(epoch FROM max(run.created_at) - min(run.created_at)), 0) AS enqueues,
        nullif(extract(epoch FROM max(run.started_at) - min(run.started_at)), 0) AS claims
    FROM run
)
SELECT
    count(run.status) AS runs,
    count(*) FILTER (WHERE run.status = 'succeeded') AS succeeded,
    -- Between n runs are n - 1 intervals.
    round((count(run.status) - 1) / span.enqueues, 1)::float8 AS enqueues_per_second,
    round((count(run.started_at) - 1) / span.claims, 1)::float8 AS claims_per_second,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY run.wait_time)
        FILTER (WHERE run.started_at IS NOT NULL) AS wait_p50_seconds,
    percentile_cont(0.95) WITHIN GROUP (ORDER BY run.wait_time)
        FILTER (WHERE run.started_at IS NOT NULL) AS wait_p95_seconds,
    percentile_cont(0.99) WITHIN GROUP (ORDER BY run.wait_time)
        FILTER (WHERE run.started_at IS NOT NULL) AS wait_p99_seconds,
    max(run.wait_time) FILTER (WHERE run.started_at IS NOT NULL) AS wait_max_seconds
FROM span
LEFT JOIN run ON true
GROUP BY span.enqueues, span.claims
