-- Failed attempts counted by job, error type, error and worker, the largest group first, with the
-- newest attempt of each.
-- $1  since    $2  until, exclusive; NULL for no bound
-- $3  jobs     $4  worker    $5  queue    $6  share    $7  error_type
-- $8  error, a text in the error or the last line of output, in any case of letters; NULL for any,
--     like the others
-- $9  limit of groups
-- Texts are cut, because workers may write long ones.
WITH counted AS (
    SELECT
        run.job_type,
        attempt.error_type,
        attempt.error,
        attempt.worker,
        count(*) AS failures,
        min(attempt.finished_at) AS first_finished_at,
        max(attempt.finished_at) AS last_finished_at,
        (array_agg(
            ARRAY[attempt.run_id, attempt.attempt]
            ORDER BY attempt.finished_at DESC, attempt.run_id DESC, attempt.attempt DESC
        ))[1:1] AS newest
    FROM jobctl.job_attempts AS attempt
    JOIN jobctl.job_runs AS run
        ON run.id = attempt.run_id
    WHERE attempt.outcome IN ('failed', 'lease_expired')
        AND attempt.finished_at >= coalesce($1::timestamptz, '-infinity')
        AND attempt.finished_at < coalesce($2::timestamptz, 'infinity')
        AND ($3::text[] IS NULL OR run.job_type = ANY ($3::text[]))
        AND ($4::text IS NULL OR attempt.worker = $4::text)
        AND ($5::text IS NULL OR run.queue = $5::text)
        AND ($6::text IS NULL OR run.share = $6::text)
        AND ($7::text IS NULL OR attempt.error_type = $7::text)
        AND (
            $8::text IS NULL
            OR strpos(lower(attempt.error), lower($8::text)) > 0
            OR strpos(
                lower((regexp_match(right(attempt.output, 1000), '([^\r\n]*\S)\s*$'))[1]),
                lower($8::text)
            ) > 0
        )
    GROUP BY run.job_type, attempt.error_type, attempt.error, attempt.worker
    ORDER BY failures DESC, last_finished_at DESC, newest DESC
    LIMIT $9::bigint
)
SELECT
    counted.job_type,
    left(counted.error_type, 100) AS error_type,
    left(counted.error, 10000) AS error,
    left(counted.worker, 255) AS worker,
    counted.failures,
    counted.first_finished_at,
    counted.last_finished_at,
    newest.run_id AS newest_id,
    -- The last line that is not blank.
    (regexp_match(right(newest.output, 1000), '([^\r\n]*\S)\s*$'))[1] AS last_line,
    now() AS now
FROM counted
JOIN jobctl.job_attempts AS newest
    ON newest.run_id = counted.newest[1][1]
    AND newest.attempt = counted.newest[1][2]
ORDER BY counted.failures DESC, counted.last_finished_at DESC, counted.newest DESC
