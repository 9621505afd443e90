-- Counts the runs that were enqueued, started, succeeded and failed in the last 10 minutes (`_10m`)
-- and in the last hour (`_1h`). A failed attempt counts as a start, too.
-- $1  job; NULL for all
-- $2  tick_age: seconds after its last tick until a worker is silent
-- A row for each job with such runs, or with due or running runs, by name. If there are several
-- jobs, the first row is for all jobs together, without a name.
--
-- `came` counts the runs that became due in 10 minutes, `left` those that started, or ended without
-- a start. They decide these columns:
--   trend             `grows` if more runs came than left, `shrinks` if fewer came, else `steady`;
--                     NULL: no run is due
--   empty_in_seconds  the time until no run is due, at this pace; NULL: never
--   at_best_seconds   the time until no run is due, at the definition's rate, if no more runs come
-- Both times are also NULL while a hold, or the lack of a worker, keeps a due run from starting.
WITH pending AS (
    SELECT
        grouped.job_type,
        sum(grouped.enqueued_10m) AS enqueued_10m,
        sum(grouped.enqueued_1h) AS enqueued_1h,
        sum(grouped.came_10m) AS came_10m,
        sum(grouped.left_10m) AS left_10m,
        sum(grouped.due) AS due,
        -- Whether a hold, or the lack of a worker, keeps a due run from starting.
        bool_or(
            grouped.due > 0
            AND (
                EXISTS (
                    SELECT FROM jobctl.current_holds AS hold
                    WHERE (hold.scope, hold.name) IN (
                        ('all', ''),
                        ('queue', grouped.queue),
                        ('job', grouped.job_type)
                    )
                )
                OR NOT (
                    SELECT serving.accepted
                    FROM jobctl.serving(grouped.job_type, grouped.queue, $2::float8) AS serving
                )
            )
        ) AS is_stopped
    FROM (
        SELECT
            run.job_type,
            run.queue,
            count(*) FILTER (WHERE run.created_at > now() - interval '10 minutes') AS enqueued_10m,
            count(*) FILTER (WHERE run.created_at > now() - interval '1 hour') AS enqueued_1h,
            count(*) FILTER (
                WHERE run.is_due AND run.run_at > now() - interval '10 minutes'
            ) AS came_10m,
            -- A failure moves run_at, so the time at which the failed attempt was due is lost. A
            -- run that failed once counts as due since its enqueue. A run that failed again was
            -- due only briefly, so it neither came nor left.
            count(*) FILTER (
                WHERE run.failed_at > now() - interval '10 minutes'
                    AND run.created_at <= now() - interval '10 minutes'
                    AND run.attempts = 1
            ) AS left_10m,
            count(*) FILTER (WHERE run.is_due) AS due
        FROM jobctl.pending_runs AS run
        WHERE $1::text IS NULL
            OR run.job_type = $1::text
        GROUP BY run.job_type, run.queue
    ) AS grouped
    GROUP BY grouped.job_type
),
running AS (
    SELECT
        run.job_type,
        count(*) FILTER (WHERE run.created_at > now() - interval '10 minutes') AS enqueued_10m,
        count(*) FILTER (WHERE run.created_at > now() - interval '1 hour') AS enqueued_1h,
        count(*) FILTER (WHERE run.started_at > now() - interval '10 minutes') AS started_10m,
        count(*) FILTER (WHERE run.started_at > now() - interval '1 hour') AS started_1h,
        count(*) FILTER (WHERE run.run_at > now() - interval '10 minutes') AS came_10m,
        extract(epoch FROM max(greatest(now(), run.started_at) - run.started_at))::float8 AS longest
    FROM jobctl.job_runs AS run
    WHERE run.status = 'running'
        AND ($1::text IS NULL OR run.job_type = $1::text)
    GROUP BY run.job_type
),
ended AS (
    SELECT
        run.job_type,
        count(*) FILTER (WHERE run.created_at > now() - interval '10 minutes') AS enqueued_10m,
        count(*) FILTER (WHERE run.created_at > now() - interval '1 hour') AS enqueued_1h,
        -- The starts of failed attempts are counted in `failed`.
        count(*) FILTER (
            WHERE run.status = 'succeeded' AND run.started_at > now() - interval '10 minutes'
        ) AS started_10m,
        count(*) FILTER (
            WHERE run.status = 'succeeded' AND run.started_at > now() - interval '1 hour'
        ) AS started_1h,
        count(*) FILTER (
            WHERE run.status = 'succeeded' AND run.finished_at > now() - interval '10 minutes'
        ) AS succeeded_10m,
        count(*) FILTER (WHERE run.status = 'succeeded') AS succeeded_1h,
        -- A run that was cancelled before it was due neither came nor left.
        count(*) FILTER (
            WHERE run.run_at > now() - interval '10 minutes' AND run.run_at <= run.finished_at
        ) AS came_10m,
        -- A run left when it started. A run that was cancelled while it waited left at its end: it
        -- has the start of an earlier attempt, or none.
        count(*) FILTER (
            WHERE CASE
                WHEN run.status = 'cancelled' THEN run.finished_at
                ELSE coalesce(run.started_at, run.finished_at)
            END > now() - interval '10 minutes'
                AND run.run_at <= run.finished_at
        ) AS left_10m
    FROM jobctl.job_runs AS run
    WHERE run.finished_at > now() - interval '1 hour'
        AND ($1::text IS NULL OR run.job_type = $1::text)
    GROUP BY run.job_type
),
failed AS (
    SELECT
        run.job_type,
        count(*) FILTER (WHERE attempt.started_at > now() - interval '10 minutes') AS started_10m,
        count(*) FILTER (WHERE attempt.started_at > now() - interval '1 hour') AS started_1h,
        count(*) FILTER (WHERE attempt.finished_at > now() - interval '10 minutes') AS failed_10m,
        count(*) AS failed_1h
    FROM jobctl.job_attempts AS attempt
    JOIN jobctl.job_runs AS run
        ON run.id = attempt.run_id
    WHERE attempt.outcome IN ('failed', 'lease_expired')
        AND attempt.finished_at > now() - interval '1 hour'
        AND ($1::text IS NULL OR run.job_type = $1::text)
    GROUP BY run.job_type
),
flow AS (
    SELECT
        job_type,
        coalesce(pending.enqueued_10m, 0) + coalesce(running.enqueued_10m, 0)
            + coalesce(ended.enqueued_10m, 0) AS enqueued_10m,
        coalesce(pending.enqueued_1h, 0) + coalesce(running.enqueued_1h, 0)
            + coalesce(ended.enqueued_1h, 0) AS enqueued_1h,
        coalesce(running.started_10m, 0) + coalesce(ended.started_10m, 0)
            + coalesce(failed.started_10m, 0) AS started_10m,
        coalesce(running.started_1h, 0) + coalesce(ended.started_1h, 0)
            + coalesce(failed.started_1h, 0) AS started_1h,
        coalesce(ended.succeeded_10m, 0) AS succeeded_10m,
        coalesce(ended.succeeded_1h, 0) AS succeeded_1h,
        coalesce(failed.failed_10m, 0) AS failed_10m,
        coalesce(failed.failed_1h, 0) AS failed_1h,
        coalesce(pending.came_10m, 0) + coalesce(running.came_10m, 0)
            + coalesce(ended.came_10m, 0) AS came_10m,
        coalesce(pending.left_10m, 0) + coalesce(running.started_10m, 0)
            + coalesce(ended.left_10m, 0) AS left_10m,
        coalesce(pending.due, 0) AS due,
        pending.is_stopped,
        running.longest
    FROM pending
    FULL JOIN running USING (job_type)
    FULL JOIN ended USING (job_type)
    FULL JOIN failed USING (job_type)
),
summed AS (
    SELECT
        flow.job_type,
        sum(flow.enqueued_10m)::bigint AS enqueued_10m,
        sum(flow.enqueued_1h)::bigint AS enqueued_1h,
        sum(flow.started_10m)::bigint AS started_10m,
        sum(flow.started_1h)::bigint AS started_1h,
        sum(flow.succeeded_10m)::bigint AS succeeded_10m,
        sum(flow.succeeded_1h)::bigint AS succeeded_1h,
        sum(flow.failed_10m)::bigint AS failed_10m,
        sum(flow.failed_1h)::bigint AS failed_1h,
        sum(flow.came_10m)::bigint AS came_10m,
        sum(flow.left_10m)::bigint AS left_10m,
        sum(flow.due)::bigint AS due,
        coalesce(bool_or(flow.is_stopped), false) AS is_stopped,
        max(flow.longest) AS longest
    FROM flow
    GROUP BY GROUPING SETS ((flow.job_type), ())
    -- The row of all jobs (job_type is NULL), only if $1 is NULL and there are several jobs.
    HAVING flow.job_type IS NOT NULL
        OR $1::text IS NULL AND count(*) > 1
)
SELECT
    summed.job_type,
    summed.enqueued_10m,
    summed.enqueued_1h,
    summed.started_10m,
    summed.started_1h,
    summed.succeeded_10m,
    summed.succeeded_1h,
    summed.failed_10m,
    summed.failed_1h,
    summed.due AS due_runs,
    CASE
        WHEN summed.due = 0 THEN NULL
        WHEN summed.came_10m > summed.left_10m THEN 'grows'
        WHEN summed.came_10m < summed.left_10m THEN 'shrinks'
        ELSE 'steady'
    END AS trend,
    CASE
        WHEN summed.due > 0 AND NOT summed.is_stopped
            -- In 10 minutes, the due runs become fewer by the divisor. NULL: not fewer.
            THEN summed.due * 600.0::float8
                / nullif(greatest(summed.left_10m - summed.came_10m, 0), 0)
    END AS empty_in_seconds,
    CASE
        WHEN summed.due > 0 AND NOT summed.is_stopped
            THEN summed.due * extract(epoch FROM definition.rate_interval)::float8
    END AS at_best_seconds,
    summed.longest AS longest_running_seconds
FROM summed
LEFT JOIN jobctl.job_definitions AS definition
    ON definition.name = summed.job_type
WHERE summed.enqueued_1h + summed.started_1h + summed.failed_1h + summed.due > 0
    OR summed.longest IS NOT NULL
ORDER BY summed.job_type NULLS FIRST
