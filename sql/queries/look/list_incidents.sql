-- Lists incidents: failed attempts with the same cause at about the same time, see
-- name_incident.sql.
--
-- Rows: incidents of the same jobs with the same cause are one row, a trickle, if less than 8 hours
-- (a shift) lie between the end of an incident and the begin of the next one. So a failure that
-- comes each night, or twice a day, is a row each time. Counts are of the attempts that match.
--
-- Order: first the rows with dead runs that are not settled, then the rows with runs that still
-- wait or run, then the others. In each group, the rows with the most such runs come first, then
-- the rows with the latest failure.
--
-- Runs: a run counts as dead, waiting, recovered or settled only for the incident of its last
-- failed attempt.
--
-- Name: a row has the name of its newest incident with dead runs; without one, of the newest with
-- runs that still wait or run; else of the newest.
--
-- Reads only columns that a viewer may read.
-- $1  since      $2  until, exclusive; NULL for no bound
-- $3  run_ids    $4  attempts, arrays of equal length: only these attempts; NULL for all
-- $5  with_unstarted: whether to add runs that died without a failed attempt, an incident each
-- $6  limit
-- Some columns:
--   newest_id     the run of the newest failure
--   newest_cause  the error of this failure; for an exit status, the last line of its output
--   times         the number of incidents in the row; NULL: only one
--   total         the number of all rows, also beyond the limit
WITH failed AS (
    SELECT
        attempt.incident,
        attempt.run_id,
        attempt.attempt,
        attempt.worker,
        attempt.finished_at,
        attempt.error_type,
        attempt.cause
    FROM jobctl.job_attempts AS attempt
    WHERE attempt.outcome IN ('failed', 'lease_expired')
        AND attempt.finished_at >= coalesce($1::timestamptz, '-infinity')
        AND attempt.finished_at < coalesce($2::timestamptz, 'infinity')
),
-- The wanted failures: attempts, and runs that died without a failed attempt.
members AS (
    SELECT
        failed.*,
        -- Whether it is the last failed attempt of its run.
        NOT EXISTS (
            SELECT
            FROM jobctl.job_attempts AS later
            WHERE later.run_id = failed.run_id
                AND later.attempt > failed.attempt
                AND later.outcome IN ('failed', 'lease_expired')
        ) AS is_last
    FROM failed
    LEFT JOIN unnest($3::bigint[], $4::integer[]) AS wanted (run_id, attempt)
        ON wanted.run_id = failed.run_id
        AND wanted.attempt = failed.attempt
    WHERE $3::bigint[] IS NULL
        OR wanted.run_id IS NOT NULL
    UNION ALL
    -- Attempt 0 stands for a run that died without a failed attempt.
    SELECT
        run.id || '.0' AS incident,
        run.id AS run_id,
        0 AS attempt,
        NULL AS worker,
        run.finished_at,
        run.error_type,
        left(run.last_error, 200) AS cause,
        true AS is_last
    FROM jobctl.job_runs AS run
    WHERE $5::boolean
        AND run.status = 'dead'
        AND run.finished_at >= coalesce($1::timestamptz, '-infinity')
        AND run.finished_at < coalesce($2::timestamptz, 'infinity')
        AND NOT EXISTS (
            SELECT
            FROM jobctl.job_attempts AS attempt
            WHERE attempt.run_id = run.id
                AND attempt.attempt = run.attempts
                AND attempt.outcome IN ('failed', 'lease_expired')
                -- With another error type, the run died later, and not of this attempt.
                AND attempt.error_type IS NOT DISTINCT FROM run.error_type
        )
),
-- The same failures, with the state of their runs.
failures AS (
    SELECT
        member.*,
        run.job_type,
        run.share,
        member.is_last
            AND run.status = 'dead'
            AND run.settled_at IS NULL
            -- With another error type, the run died later, and not of this attempt.
            AND run.error_type IS NOT DISTINCT FROM member.error_type AS is_dead,
        member.is_last AND run.status IN ('queued', 'failed', 'running') AS is_unfinished,
        member.is_last AND run.status = 'succeeded' AS is_recovered,
        member.is_last AND run.settled_at IS NOT NULL AS is_settled
    FROM members AS member
    -- OFFSET 0: reads these runs by their ids, and not all runs.
    CROSS JOIN LATERAL (
        SELECT run.job_type, run.share, run.status, run.settled_at, run.error_type
        FROM jobctl.job_runs AS run
        WHERE run.id = member.run_id
        OFFSET 0
    ) AS run
),
incidents AS (
    SELECT
        failure.incident,
        failure.error_type,
        failure.cause,
        array_agg(DISTINCT failure.job_type) AS jobs,
        min(failure.finished_at) AS first_at,
        max(failure.finished_at) AS last_at
    FROM failures AS failure
    GROUP BY failure.incident, failure.error_type, failure.cause
),
-- Whether at least 8 hours lie between an incident and all earlier incidents of the same jobs and
-- cause.
pauses AS (
    SELECT
        incident.*,
        incident.first_at - max(incident.last_at) OVER (
            PARTITION BY incident.error_type, incident.cause, incident.jobs
            ORDER BY incident.first_at, incident.incident
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) >= interval '8 hours' AS begins_a_trickle
    FROM incidents AS incident
),
-- Numbers the trickles: each long pause begins the next one.
trickles AS (
    SELECT
        pause.incident,
        pause.error_type,
        pause.cause,
        pause.jobs,
        count(*) FILTER (WHERE pause.begins_a_trickle) OVER (
            PARTITION BY pause.error_type, pause.cause, pause.jobs
            ORDER BY pause.first_at, pause.incident
        ) AS trickle
    FROM pauses AS pause
),
-- The rows of the list.
counted AS (
    SELECT
        (array_agg(
            failure.incident
            ORDER BY
                -- See "Name" above.
                CASE WHEN failure.is_dead THEN 1 WHEN failure.is_unfinished THEN 2 ELSE 3 END,
                failure.finished_at DESC,
                failure.run_id DESC,
                failure.attempt DESC
        ))[1] AS incident,
        failure.error_type,
        failure.cause,
        min(failure.finished_at) AS first_finished_at,
        max(failure.finished_at) AS last_finished_at,
        count(*) AS failures,
        count(DISTINCT failure.run_id) AS runs,
        trickle.jobs,
        array_agg(DISTINCT failure.worker) FILTER (WHERE failure.worker IS NOT NULL) AS workers,
        count(DISTINCT failure.share) AS shares,
        count(*) FILTER (WHERE failure.is_dead) AS dead,
        count(*) FILTER (WHERE failure.is_unfinished) AS waiting,
        count(*) FILTER (WHERE failure.is_recovered) AS recovered,
        count(*) FILTER (WHERE failure.is_settled) AS settled,
        -- The run and the attempt of the newest failure: {{run_id, attempt}}.
        (array_agg(
            ARRAY[failure.run_id, failure.attempt]
            ORDER BY failure.finished_at DESC, failure.run_id DESC, failure.attempt DESC
        ))[1:1] AS newest,
        array_agg(DISTINCT failure.incident) AS incidents
    FROM failures AS failure
    JOIN trickles AS trickle
        ON trickle.incident = failure.incident
        AND trickle.error_type IS NOT DISTINCT FROM failure.error_type
        AND trickle.cause IS NOT DISTINCT FROM failure.cause
    GROUP BY failure.error_type, failure.cause, trickle.jobs, trickle.trickle
)
SELECT
    counted.incident,
    counted.error_type,
    counted.cause,
    counted.first_finished_at,
    counted.last_finished_at,
    counted.failures,
    counted.runs,
    counted.jobs,
    coalesce(counted.workers, ARRAY[]::text[]) AS workers,
    counted.shares,
    counted.dead,
    counted.waiting,
    counted.recovered,
    counted.settled,
    counted.newest[1][1] AS newest_id,
    counted.incidents,
    nullif(cardinality(counted.incidents), 1)::bigint AS times,
    CASE
        WHEN counted.error_type = 'exit_code' THEN texts.last_line
        ELSE texts.error
    END AS newest_cause,
    now() AS now,
    count(*) OVER () AS total
FROM counted
LEFT JOIN LATERAL jobctl.attempt_texts(counted.newest[1][1], counted.newest[1][2]::integer) AS texts
    ON true
ORDER BY
    -- See "Order" above.
    CASE WHEN counted.dead > 0 THEN 1 WHEN counted.waiting > 0 THEN 2 ELSE 3 END,
    counted.dead DESC,
    counted.waiting DESC,
    counted.last_finished_at DESC,
    counted.newest DESC
LIMIT $6::bigint
