-- Reads the state of every job that has a definition, or unfinished, dead or recently succeeded
-- runs. A queued or failed run counts as `due` or as `not_due`. A settled run does not count.
-- $1  job; NULL for all
-- Run times are those of the newest 200 successes within 24 hours. Reading the attempts of more
-- would take longer than counting the runs.
WITH unsettled AS (
    -- The unfinished runs, and the dead runs that are not settled. `since`: when a pending run
    -- became or becomes due, or a running run started.
    SELECT run.job_type, run.status, run.is_due, run.run_at AS since
    FROM jobctl.pending_runs AS run
    WHERE $1::text IS NULL
        OR run.job_type = $1::text
    UNION ALL
    SELECT run.job_type, run.status, NULL AS is_due, NULL AS since
    FROM jobctl.job_runs AS run
    WHERE run.status = 'blocked'
        AND ($1::text IS NULL OR run.job_type = $1::text)
    UNION ALL
    SELECT run.job_type, run.status, NULL AS is_due, run.started_at AS since
    FROM jobctl.job_runs AS run
    WHERE run.status = 'running'
        AND ($1::text IS NULL OR run.job_type = $1::text)
    UNION ALL
    SELECT run.job_type, run.status, NULL AS is_due, NULL AS since
    FROM jobctl.job_runs AS run
    WHERE run.status = 'dead'
        AND run.settled_at IS NULL
        AND ($1::text IS NULL OR run.job_type = $1::text)
),
counted AS (
    SELECT
        unsettled.job_type,
        count(*) FILTER (WHERE NOT unsettled.is_due) AS not_due,
        count(*) FILTER (WHERE unsettled.status = 'blocked') AS blocked,
        count(*) FILTER (WHERE unsettled.is_due) AS due,
        count(*) FILTER (WHERE unsettled.status = 'running') AS running,
        count(*) FILTER (WHERE unsettled.status = 'failed') AS failed,
        count(*) FILTER (WHERE unsettled.status = 'dead') AS dead,
        min(unsettled.since) FILTER (WHERE unsettled.is_due) AS oldest_due,
        max(unsettled.since) FILTER (WHERE unsettled.status = 'running') AS last_start
    FROM unsettled
    GROUP BY unsettled.job_type
),
-- The successes of 24 hours, of which the newest of each job has place 1.
newest AS (
    SELECT
        run.id,
        run.job_type,
        run.attempts,
        row_number() OVER (PARTITION BY run.job_type ORDER BY run.finished_at DESC) AS place
    FROM jobctl.job_runs AS run
    WHERE run.finished_at > now() - interval '24 hours'
        AND run.status = 'succeeded'
        AND ($1::text IS NULL OR run.job_type = $1::text)
),
succeeded AS (
    SELECT
        newest.job_type,
        count(*) AS runs,
        -- The median, the 95th percentile and the maximum.
        percentile_disc(ARRAY[0.5, 0.95, 1]) WITHIN GROUP (ORDER BY attempt.took) AS took
    FROM newest
    -- OFFSET 0: reads these attempts by their runs, and not all attempts.
    LEFT JOIN LATERAL (
        SELECT
            date_part(
                'epoch',
                greatest(attempt.finished_at, attempt.started_at) - attempt.started_at
            ) AS took
        FROM jobctl.job_attempts AS attempt
        WHERE newest.place <= 200
            AND attempt.run_id = newest.id
            AND attempt.attempt = newest.attempts
        OFFSET 0
    ) AS attempt ON true
    GROUP BY newest.job_type
),
definition AS (
    SELECT
        definition.name AS job_type,
        CASE
            WHEN NOT definition.enabled THEN 'disabled'
            WHEN definition.schedule IS NULL THEN NULL
            WHEN definition.paused_at IS NOT NULL THEN 'paused'
            ELSE 'fires'
        END AS state,
        definition.next_run_at
    FROM jobctl.job_definitions AS definition
    WHERE $1::text IS NULL
        OR definition.name = $1::text
)
SELECT
    job_type,
    coalesce(counted.not_due, 0) AS not_due_runs,
    coalesce(counted.due, 0) AS due_runs,
    coalesce(counted.running, 0) AS running_runs,
    coalesce(counted.failed, 0) AS failed_runs,
    coalesce(counted.dead, 0) AS dead_runs,
    extract(epoch FROM now() - counted.oldest_due)::float8 AS oldest_due_age_seconds,
    coalesce(succeeded.runs, 0) AS succeeded_runs_last_24h,
    succeeded.took[1] AS run_time_median_seconds,
    succeeded.took[2] AS run_time_p95_seconds,
    succeeded.took[3] AS run_time_max_seconds,
    definition.state,
    CASE WHEN definition.state = 'fires' THEN definition.next_run_at END AS next_run_at,
    coalesce(counted.blocked, 0) AS blocked_runs,
    CASE
        WHEN counted.running > 0
            THEN counted.last_start + (
                SELECT make_interval(secs => usual.median_seconds)
                FROM jobctl.usual_run_time(job_type) AS usual
            )
    END AS usual_end_at
FROM definition
FULL JOIN counted USING (job_type)
FULL JOIN succeeded USING (job_type)
ORDER BY job_type
