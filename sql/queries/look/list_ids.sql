-- The ids of matching runs, the newest first or the latest end first.
-- $1  statuses    $2  job    $3  queue    $4  key    $5  error type; NULL for any
-- $6  since       $7  until, exclusive; NULL for no bound. Both compare the end of a run, or its
--                 creation while it has not ended.
-- $8  whether the latest of these times comes first    $9  maximum number; NULL for all
-- $10 worker of an attempt; NULL for any      $11 whether only runs with a failed attempt match
-- $12 whether settled runs are left out
--
-- Running runs are separate because they have an index of their own. They are few. The others are
-- read in the order of an index, until enough of them match. If there is a window, waiting runs are
-- with the running ones, so that an index finds the ends in the window.
WITH ended_or_waiting AS (
    SELECT run.id, run.finished_at AS at
    FROM jobctl.job_runs AS run
    WHERE run.status <> 'running'
        AND ($1::text[] IS NULL OR run.status = ANY ($1::text[]))
        AND ($2::text IS NULL OR run.job_type = $2::text)
        AND ($3::text IS NULL OR run.queue = $3::text)
        AND ($4::text IS NULL OR run.idempotency_key = $4::text)
        AND ($5::text IS NULL OR run.error_type = $5::text)
        AND (run.settled_at IS NULL OR NOT $12::boolean)
        AND (
            $6::timestamptz IS NULL AND $7::timestamptz IS NULL
            OR run.finished_at >= coalesce($6::timestamptz, '-infinity')
                AND run.finished_at < coalesce($7::timestamptz, 'infinity')
        )
        AND (
            $10::text IS NULL
            -- The search ends at the worker's first run.
            OR run.id >= (
                SELECT min(attempt.run_id)
                FROM jobctl.job_attempts AS attempt
                WHERE attempt.worker = $10::text
            )
            AND EXISTS (
                SELECT
                FROM jobctl.job_attempts AS attempt
                WHERE attempt.run_id = run.id
                    AND attempt.worker = $10::text
            )
        )
        AND (
            NOT $11::boolean
            OR EXISTS (
                SELECT
                FROM jobctl.job_attempts AS attempt
                WHERE attempt.run_id = run.id
                    AND attempt.outcome IN ('failed', 'lease_expired')
            )
        )
    ORDER BY
        CASE WHEN $8::boolean THEN run.finished_at END DESC,
        run.id DESC
    LIMIT $9::bigint
),
unfinished AS (
    SELECT run.id, run.created_at AS at
    FROM jobctl.job_runs AS run
    WHERE (
            run.status = 'running'
            OR coalesce($6::timestamptz, $7::timestamptz) IS NOT NULL
                AND run.status IN ('queued', 'failed')
        )
        AND ($1::text[] IS NULL OR run.status = ANY ($1::text[]))
        AND ($2::text IS NULL OR run.job_type = $2::text)
        AND ($3::text IS NULL OR run.queue = $3::text)
        AND ($4::text IS NULL OR run.idempotency_key = $4::text)
        AND ($5::text IS NULL OR run.error_type = $5::text)
        AND run.created_at >= coalesce($6::timestamptz, '-infinity')
        AND run.created_at < coalesce($7::timestamptz, 'infinity')
        AND (
            $10::text IS NULL
            OR EXISTS (
                SELECT
                FROM jobctl.job_attempts AS attempt
                WHERE attempt.run_id = run.id
                    AND attempt.worker = $10::text
            )
            OR run.locked_by = $10::text
        )
        AND (
            NOT $11::boolean
            OR EXISTS (
                SELECT
                FROM jobctl.job_attempts AS attempt
                WHERE attempt.run_id = run.id
                    AND attempt.outcome IN ('failed', 'lease_expired')
            )
        )
    ORDER BY
        CASE WHEN $8::boolean THEN run.created_at END DESC,
        run.id DESC
    LIMIT $9::bigint
)
SELECT matching.id
FROM (
    SELECT * FROM ended_or_waiting
    UNION ALL
    SELECT * FROM unfinished
) AS matching
ORDER BY
    CASE WHEN $8::boolean THEN matching.at END DESC,
    matching.id DESC
LIMIT $9::bigint
