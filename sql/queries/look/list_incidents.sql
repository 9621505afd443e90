-- Incidents, see name_incident.sql, with the counts of their attempts that match. Those with dead
-- runs that are not settled come first, then those with runs that still wait or run, then the
-- others; those with the most such runs first, then the latest. A run counts for the incident of
-- its last failed attempt. Reads only columns that a viewer may read.
-- $1  since      $2  until, exclusive; NULL for no bound
-- $3  run_ids    $4  attempts, of equal length: only these attempts; NULL for all
-- $5  with_unstarted: also runs that died without a failed attempt; each is an incident
-- $6  limit
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
members AS (
    SELECT
        failed.*,
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
    SELECT
        run.id || '.0',
        run.id,
        0,
        NULL,
        run.finished_at,
        run.error_type,
        left(run.last_error, 200),
        true
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
                -- Else the run died later, without another attempt.
                AND attempt.error_type IS NOT DISTINCT FROM run.error_type
        )
),
counted AS (
    SELECT
        member.incident,
        member.error_type,
        member.cause,
        min(member.finished_at) AS first_finished_at,
        max(member.finished_at) AS last_finished_at,
        count(*) AS failures,
        count(DISTINCT run.id) AS runs,
        array_agg(DISTINCT run.job_type) AS jobs,
        array_agg(DISTINCT member.worker) FILTER (WHERE member.worker IS NOT NULL) AS workers,
        count(DISTINCT run.share) AS shares,
        count(*) FILTER (
            WHERE member.is_last
                AND run.status = 'dead'
                AND run.settled_at IS NULL
                -- Else the run died later, without another attempt.
                AND run.error_type IS NOT DISTINCT FROM member.error_type
        ) AS dead,
        count(*) FILTER (
            WHERE member.is_last AND run.status IN ('queued', 'failed', 'running')
        ) AS waiting,
        count(*) FILTER (WHERE member.is_last AND run.status = 'succeeded') AS recovered,
        count(*) FILTER (WHERE member.is_last AND run.settled_at IS NOT NULL) AS settled,
        (array_agg(
            ARRAY[member.run_id, member.attempt]
            ORDER BY member.finished_at DESC, member.run_id DESC, member.attempt DESC
        ))[1:1] AS newest
    FROM members AS member
    -- OFFSET 0: reads these runs by their ids, and not all runs.
    CROSS JOIN LATERAL (
        SELECT run.id, run.job_type, run.share, run.status, run.settled_at, run.error_type
        FROM jobctl.job_runs AS run
        WHERE run.id = member.run_id
        OFFSET 0
    ) AS run
    GROUP BY member.incident, member.error_type, member.cause
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
    now() AS now,
    counted.newest[1][2]::integer AS newest_attempt,
    count(*) OVER () AS total
FROM counted
ORDER BY
    CASE WHEN counted.dead > 0 THEN 1 WHEN counted.waiting > 0 THEN 2 ELSE 3 END,
    counted.dead DESC,
    counted.waiting DESC,
    counted.last_finished_at DESC,
    counted.newest DESC
LIMIT $6::bigint
