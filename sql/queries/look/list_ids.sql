-- The ids of matching runs, the newest first or the latest end first.
-- $1  job      $2  queue    $3  key    $4  error_type; NULL for any
-- $5  since    $6  until, exclusive; NULL for no bound. Both compare the end of a run, or its
--              creation while it has not ended.
-- $7  unsettled: whether settled runs are left out, and runs that a tick or a newer run cancelled.
--     An error type selects those that a tick cancelled.
-- $8  statuses; NULL for any
-- $9  worker of an attempt; NULL for any    $10 had_failures: whether only such runs match
-- $11 latest_end_first: whether the latest of these times comes first    $12 limit; NULL for all
--
-- Running runs are separate because they have an index of their own. They are few. The others are
-- read in the order of an index, until enough of them match. If there is a window, waiting runs are
-- with the running ones, so that an index finds the ends in the window.
WITH ended_or_waiting AS (
    SELECT run.id, run.finished_at AS at
    FROM jobctl.job_runs AS run
    WHERE run.status <> 'running'
        AND ($8::text[] IS NULL OR run.status = ANY ($8::text[]))
        AND ($1::text IS NULL OR run.job_type = $1::text)
        AND ($2::text IS NULL OR run.queue = $2::text)
        AND ($3::text IS NULL OR run.idempotency_key = $3::text)
        AND ($4::text IS NULL OR run.error_type = $4::text)
        AND (
            NOT $7::boolean
            OR run.settled_at IS NULL
                AND (
                    run.status <> 'cancelled'
                    OR run.key_scope <> 'replaced'
                        AND (
                            $4::text IS NOT NULL
                            OR coalesce(run.error_type, '') NOT IN ('expired', 'dropped')
                        )
                )
        )
        AND (
            $5::timestamptz IS NULL AND $6::timestamptz IS NULL
            OR run.finished_at >= coalesce($5::timestamptz, '-infinity')
                AND run.finished_at < coalesce($6::timestamptz, 'infinity')
        )
        AND (
            $9::text IS NULL
            -- The search ends at the worker's first run.
            OR run.id >= (
                SELECT min(attempt.run_id)
                FROM jobctl.job_attempts AS attempt
                WHERE attempt.worker = $9::text
            )
            AND EXISTS (
                SELECT
                FROM jobctl.job_attempts AS attempt
                WHERE attempt.run_id = run.id
                    AND attempt.worker = $9::text
            )
        )
        AND (
            NOT $10::boolean
            OR EXISTS (
                SELECT
                FROM jobctl.job_attempts AS attempt
                WHERE attempt.run_id = run.id
                    AND attempt.outcome IN ('failed', 'lease_expired')
            )
        )
    ORDER BY
        CASE WHEN $11::boolean THEN run.finished_at END DESC,
        run.id DESC
    LIMIT $12::bigint
),
unfinished AS (
    SELECT run.id, run.created_at AS at
    FROM jobctl.job_runs AS run
    WHERE (
            run.status = 'running'
            OR coalesce($5::timestamptz, $6::timestamptz) IS NOT NULL
                AND run.status IN ('queued', 'failed')
        )
        AND ($8::text[] IS NULL OR run.status = ANY ($8::text[]))
        AND ($1::text IS NULL OR run.job_type = $1::text)
        AND ($2::text IS NULL OR run.queue = $2::text)
        AND ($3::text IS NULL OR run.idempotency_key = $3::text)
        AND ($4::text IS NULL OR run.error_type = $4::text)
        AND run.created_at >= coalesce($5::timestamptz, '-infinity')
        AND run.created_at < coalesce($6::timestamptz, 'infinity')
        AND (
            $9::text IS NULL
            OR EXISTS (
                SELECT
                FROM jobctl.job_attempts AS attempt
                WHERE attempt.run_id = run.id
                    AND attempt.worker = $9::text
            )
            OR run.locked_by = $9::text
        )
        AND (
            NOT $10::boolean
            OR EXISTS (
                SELECT
                FROM jobctl.job_attempts AS attempt
                WHERE attempt.run_id = run.id
                    AND attempt.outcome IN ('failed', 'lease_expired')
            )
        )
    ORDER BY
        CASE WHEN $11::boolean THEN run.created_at END DESC,
        run.id DESC
    LIMIT $12::bigint
)
SELECT matching.id
FROM (
    SELECT * FROM ended_or_waiting
    UNION ALL
    SELECT * FROM unfinished
) AS matching
ORDER BY
    CASE WHEN $11::boolean THEN matching.at END DESC,
    matching.id DESC
LIMIT $12::bigint
