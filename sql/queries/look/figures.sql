-- Adds up the figures of each job since its first run. Pruning does not lower them. Days are in
-- UTC.
-- $1  job; NULL for all
-- A row per job, by name. `waits`: how many attempts waited at most 1, 10, 30, 60, 300, 3600 and
-- any number of seconds, from due to start.
SELECT
    figures.job_type,
    sum(figures.succeeded)::bigint AS succeeded,
    sum(figures.dead)::bigint AS dead,
    sum(figures.expired)::bigint AS expired,
    sum(figures.dropped)::bigint AS dropped,
    sum(figures.failed_attempts)::bigint AS failed_attempts,
    sum(figures.retried_attempts)::bigint AS retried_attempts,
    sum(figures.run_time_seconds) AS run_time_seconds,
    sum(figures.wait_seconds) AS wait_seconds,
    ARRAY[
        sum(figures.waits[1]),
        sum(figures.waits[2]),
        sum(figures.waits[3]),
        sum(figures.waits[4]),
        sum(figures.waits[5]),
        sum(figures.waits[6]),
        sum(figures.waits[7])
    ]::bigint[] AS waits,
    (array_agg(figures.last_status ORDER BY figures.last_ended_at DESC NULLS LAST))[1]
        AS last_status,
    max(figures.last_succeeded_at) AS last_succeeded_at,
    coalesce(sum(figures.dropped) FILTER (WHERE figures.day >= today.day), 0)::bigint
        AS dropped_today,
    coalesce(sum(figures.dropped) FILTER (WHERE figures.day > today.day - 7), 0)::bigint
        AS dropped_last_7_days
FROM jobctl.job_figures AS figures
CROSS JOIN (SELECT (now() AT TIME ZONE 'UTC')::date AS day) AS today
WHERE $1::text IS NULL
    OR figures.job_type = $1::text
GROUP BY figures.job_type
ORDER BY figures.job_type
