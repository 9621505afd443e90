-- The counts of each job by day, in UTC. Adds up the rows of job_figures, which may have several
-- for a day. `waits` counts attempts by the time from due to start: at most 1, 10, 30, 60, 300,
-- 3600 and any number of seconds. Each count includes the ones before it.
CREATE OR REPLACE VIEW jobctl.daily_figures AS
SELECT
    job_type,
    day,
    sum(succeeded)::bigint AS succeeded,
    sum(dead)::bigint AS dead,
    sum(expired)::bigint AS expired,
    sum(dropped)::bigint AS dropped,
    sum(failed_attempts)::bigint AS failed_attempts,
    sum(retried_attempts)::bigint AS retried_attempts,
    sum(run_time_seconds) AS run_time_seconds,
    sum(wait_seconds) AS wait_seconds,
    ARRAY[
        sum(waits[1]),
        sum(waits[2]),
        sum(waits[3]),
        sum(waits[4]),
        sum(waits[5]),
        sum(waits[6]),
        sum(waits[7])
    ]::bigint[] AS waits,
    max(last_ended_at) AS last_ended_at,
    (array_agg(last_status ORDER BY last_ended_at DESC NULLS LAST))[1] AS last_status,
    max(last_succeeded_at) AS last_succeeded_at
FROM jobctl.job_figures
GROUP BY job_type, day;
