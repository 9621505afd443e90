-- Lists the jobs that a report shows: those with a run, a failed attempt or a dropped run in the
-- window, with a running or pending run, with an enabled definition, or with a problem. Jobs with a
-- problem come first, then those with failures, then those with the most runs.
-- $1  bins: their starts. A bin is a part of the window
-- $2  width: the seconds of a bin
-- $3  by_day: whether to read the figures of days in UTC instead of the runs. They count no
--     cancelled run
-- $4  troubled: jobs with a problem       $5  limit
--
-- `bins` is a JSON array with an object for each bin in which a run or attempt ended:
--   index    the place of the bin, from 0
--   failed   attempts that did not end their run, in the bin of their end
--   began    the earliest start of the runs and attempts that took longer than a bin. It is counted
--            in bins after the start of the first bin
--   longest  the longest time from the claim to the record of a success, in seconds
-- `total` and `all_...` count all jobs, also those beyond the limit. `dropped` counts whole days of
-- the window. The last columns are those of run_time_trend.sql.
WITH ended AS (
    -- Runs, unless by_day.
    SELECT
        grouped.job_type AS job,
        bin.place - 1 AS bin,
        -- The runs of a row have one status. They are counted in the column of this status.
        CASE grouped.status WHEN 'succeeded' THEN grouped.runs ELSE 0 END AS succeeded,
        0 AS failed,
        CASE grouped.status WHEN 'dead' THEN grouped.runs ELSE 0 END AS dead,
        CASE grouped.status WHEN 'cancelled' THEN grouped.runs ELSE 0 END AS cancelled,
        -- The start of a cancelled run may be that of an earlier attempt, after which it waited.
        CASE WHEN grouped.status <> 'cancelled' THEN grouped.began END AS began,
        CASE WHEN grouped.status = 'succeeded' THEN grouped.longest END AS longest
    FROM unnest($1::timestamptz[]) WITH ORDINALITY AS bin (start, place)
    -- Reads each bin's part of the index. Finding the bin of each run would take longer.
    CROSS JOIN LATERAL (
        SELECT
            run.job_type,
            run.status,
            count(*) AS runs,
            min(run.started_at) FILTER (
                WHERE run.started_at < run.finished_at - make_interval(secs => $2::float8)
            ) AS began,
            max(greatest(run.finished_at, run.started_at) - run.started_at) AS longest
        FROM jobctl.job_runs AS run
        WHERE NOT $3::boolean
            AND run.finished_at >= bin.start
            AND run.finished_at < coalesce(($1::timestamptz[])[bin.place + 1], 'infinity')
        GROUP BY run.job_type, run.status
    ) AS grouped
    UNION ALL
    -- Failed attempts, unless by_day.
    SELECT
        run.job_type,
        width_bucket(attempt.finished_at, $1::timestamptz[]) - 1 AS bin,
        0 AS succeeded,
        count(*) AS failed,
        0 AS dead,
        0 AS cancelled,
        min(attempt.started_at) FILTER (
            WHERE attempt.finished_at - attempt.started_at > make_interval(secs => $2::float8)
        ) AS began,
        NULL AS longest
    FROM jobctl.job_attempts AS attempt
    -- OFFSET 0: reads these runs by their ids, and not all runs.
    CROSS JOIN LATERAL (
        SELECT run.job_type, run.status, run.attempts
        FROM jobctl.job_runs AS run
        WHERE run.id = attempt.run_id
        OFFSET 0
    ) AS run
    WHERE NOT $3::boolean
        AND attempt.outcome IN ('failed', 'lease_expired')
        AND attempt.finished_at >= ($1::timestamptz[])[1]
        -- The last attempt of a dead run is counted as dead.
        AND NOT (run.status = 'dead' AND attempt.attempt = run.attempts)
    GROUP BY run.job_type, bin
    UNION ALL
    -- Figures, if by_day.
    SELECT
        figures.job_type,
        width_bucket(figures.day::timestamp AT TIME ZONE 'UTC', $1::timestamptz[]) - 1 AS bin,
        sum(figures.succeeded) AS succeeded,
        sum(figures.retried_attempts) AS failed,
        sum(figures.dead) AS dead,
        0 AS cancelled,
        NULL AS began,
        NULL AS longest
    FROM jobctl.job_figures AS figures
    WHERE $3::boolean
        AND figures.day >= (($1::timestamptz[])[1] AT TIME ZONE 'UTC')::date
    GROUP BY figures.job_type, bin
),
-- The bins of each job in which something ended.
bins AS (
    SELECT
        ended.job,
        ended.bin,
        sum(ended.succeeded)::bigint AS succeeded,
        sum(ended.failed)::bigint AS failed,
        sum(ended.dead)::bigint AS dead,
        sum(ended.cancelled)::bigint AS cancelled,
        min(ended.began) AS began,
        max(ended.longest) AS longest
    FROM ended
    GROUP BY ended.job, ended.bin
    HAVING sum(ended.succeeded + ended.failed + ended.dead + ended.cancelled) > 0
),
finished AS (
    SELECT
        bins.job,
        sum(bins.succeeded)::bigint AS succeeded,
        sum(bins.failed)::bigint AS failed,
        sum(bins.dead)::bigint AS dead,
        sum(bins.cancelled)::bigint AS cancelled
    FROM bins
    GROUP BY bins.job
),
running AS (
    SELECT run.job_type AS job, count(*) AS running, min(run.started_at) AS running_since
    FROM jobctl.job_runs AS run
    WHERE run.status = 'running'
    GROUP BY run.job_type
),
pending AS (
    SELECT
        run.job_type AS job,
        count(*) FILTER (WHERE run.status = 'queued') AS queued,
        count(*) FILTER (WHERE run.status = 'failed') AS to_retry
    FROM jobctl.job_runs AS run
    WHERE run.status IN ('queued', 'failed')
    GROUP BY run.job_type
),
dropped AS (
    SELECT figures.job_type AS job, sum(figures.dropped)::bigint AS dropped
    FROM jobctl.job_figures AS figures
    WHERE figures.day >= (($1::timestamptz[])[1] AT TIME ZONE 'UTC')::date
        AND figures.dropped > 0
    GROUP BY figures.job_type
),
defined AS (
    SELECT definition.name AS job, array_to_string(definition.after, ', ') AS after
    FROM jobctl.job_definitions AS definition
    WHERE definition.enabled
),
troubled AS (
    SELECT DISTINCT job FROM unnest($4::text[]) AS job
),
-- All jobs, with their places in the report.
shown AS (
    SELECT
        job AS name,
        coalesce(finished.succeeded, 0) AS succeeded,
        coalesce(finished.failed, 0) AS failed,
        coalesce(finished.dead, 0) AS dead,
        coalesce(finished.cancelled, 0) AS cancelled,
        coalesce(dropped.dropped, 0) AS dropped,
        coalesce(pending.queued, 0) AS queued,
        coalesce(pending.to_retry, 0) AS to_retry,
        coalesce(running.running, 0) AS running,
        running.running_since,
        defined.after,
        count(*) OVER () AS total,
        coalesce(sum(finished.succeeded) OVER (), 0)::bigint AS all_succeeded,
        coalesce(sum(finished.failed) OVER (), 0)::bigint AS all_failed,
        coalesce(sum(finished.dead) OVER (), 0)::bigint AS all_dead,
        coalesce(sum(dropped.dropped) OVER (), 0)::bigint AS all_dropped,
        row_number() OVER (
            ORDER BY
                job = ANY ($4::text[]) DESC,
                coalesce(finished.dead + finished.failed, 0) + coalesce(pending.to_retry, 0) > 0
                    DESC,
                coalesce(finished.succeeded + finished.dead + finished.cancelled, 0) DESC,
                coalesce(pending.queued, 0) DESC,
                job
        ) AS place
    FROM finished
    FULL JOIN running USING (job)
    FULL JOIN pending USING (job)
    FULL JOIN dropped USING (job)
    FULL JOIN defined USING (job)
    FULL JOIN troubled USING (job)
)
SELECT
    shown.*,
    coalesce(
        (
            SELECT jsonb_agg(
                jsonb_build_object(
                    'index', bins.bin,
                    'succeeded', bins.succeeded,
                    'failed', bins.failed,
                    'dead', bins.dead,
                    'cancelled', bins.cancelled,
                    'began', date_part('epoch', bins.began - ($1::timestamptz[])[1]) / $2::float8,
                    'longest', date_part('epoch', bins.longest)
                )
                ORDER BY bins.bin
            )
            FROM bins
            WHERE bins.job = shown.name
        ),
        '[]'
    ) AS bins,
    trend.average,
    trend.average_before,
    trend.days,
    trend.days_to_timeout
FROM shown
LEFT JOIN jobctl.job_definitions AS definition
    ON definition.name = shown.name
LEFT JOIN LATERAL jobctl.run_time_trend(shown.name, definition.timeout) AS trend
    ON true
WHERE shown.place <= $5::bigint
ORDER BY shown.place
