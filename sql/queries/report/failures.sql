-- What went wrong in the window: failed attempts by job, error type, its number and worker, and
-- dead runs without a failed attempt. Groups with dead runs come first, then those with a run that
-- is not finished, then the others; the latest first. Reads only columns that a viewer may read.
-- $1  since    $2  limit of groups
-- `total` counts all groups. `number` is the exit status, the signal or the HTTP status. `id` is
-- the newest run whose error is known: from the number, or because the run's last error is that of
-- this attempt. `last_error` is then the error of this run; it names no server or folder.
WITH failed AS (
    SELECT
        run.id,
        attempt.attempt,
        run.job_type AS job,
        attempt.error_type,
        -- A command that timed out has a signal, too, which is not its error.
        CASE attempt.error_type
            WHEN 'exit_code' THEN attempt.exit_code
            WHEN 'signal' THEN attempt.signal
            WHEN 'http_status' THEN attempt.http_status
        END AS number,
        attempt.worker,
        attempt.finished_at AS ended_at,
        attempt.error_type IS NOT DISTINCT FROM run.error_type
            AND attempt.attempt
            >= run.attempts - (run.status IN ('running', 'succeeded'))::integer AS is_last,
        -- The status that follows from this attempt. An earlier attempt was retried.
        CASE
            WHEN attempt.attempt >= run.attempts - (run.status = 'running')::integer
                THEN CASE WHEN run.settled_at IS NULL THEN run.status ELSE 'settled' END
        END AS status
    FROM jobctl.job_attempts AS attempt
    JOIN jobctl.job_runs AS run
        ON run.id = attempt.run_id
    WHERE attempt.outcome IN ('failed', 'lease_expired')
        AND attempt.finished_at >= $1::timestamptz
    UNION ALL
    SELECT
        run.id,
        0,
        run.job_type,
        run.error_type,
        NULL,
        NULL,
        run.finished_at,
        true,
        CASE WHEN run.settled_at IS NULL THEN run.status ELSE 'settled' END
    FROM jobctl.job_runs AS run
    WHERE run.status = 'dead'
        AND run.finished_at >= $1::timestamptz
        AND NOT EXISTS (
            SELECT
            FROM jobctl.job_attempts AS attempt
            WHERE attempt.run_id = run.id
                AND attempt.attempt = run.attempts
                AND attempt.outcome IN ('failed', 'lease_expired')
        )
),
alike AS (
    SELECT
        failed.job,
        failed.error_type,
        failed.number,
        failed.worker,
        count(*) AS failures,
        count(*) FILTER (WHERE failed.status = 'dead') AS dead,
        count(*) FILTER (WHERE failed.status = 'settled') AS settled,
        count(*) FILTER (WHERE failed.status IN ('queued', 'failed', 'running')) AS waiting,
        min(failed.ended_at) AS first_at,
        max(failed.ended_at) AS last_at,
        -- Arrays compare by their first elements: a known error, then the latest end.
        max(ARRAY[
            (failed.number IS NOT NULL OR failed.is_last)::integer,
            floor(date_part('epoch', failed.ended_at) * 1e6)::bigint,
            failed.id,
            failed.attempt
        ]) AS newest
    FROM failed
    GROUP BY failed.job, failed.error_type, failed.number, failed.worker
)
SELECT
    run.id,
    alike.newest[4]::integer AS attempt,
    alike.job,
    left(alike.error_type, 100) AS error_type,
    alike.number,
    left(alike.worker, 255) AS worker,
    CASE WHEN alike.newest[1] = 1 THEN left(run.last_error, 300) END AS last_error,
    alike.failures,
    alike.dead,
    alike.settled,
    alike.waiting,
    alike.first_at,
    alike.last_at,
    count(*) OVER () AS total
FROM alike
JOIN jobctl.job_runs AS run
    ON run.id = alike.newest[3]
ORDER BY alike.dead > 0 DESC, alike.waiting > 0 DESC, alike.last_at DESC, alike.newest DESC
LIMIT $2::bigint
