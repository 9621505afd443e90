-- The failed attempts that match, the latest end first.
-- $1  since    $2  until, exclusive; NULL for no bound
-- $3  jobs     $4  worker    $5  queue    $6  share    $7  error_type
-- $8  error, a text in the error or the last line of output, in any case of letters; NULL for any,
--     like the others
-- $9  of_run  $10  of_attempt: only attempts that failed like this one; NULL for all
-- $11 limit; NULL for all
SELECT attempt.run_id, attempt.attempt
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
            -- The last line that is not blank.
            lower((regexp_match(right(attempt.output, 1000), '([^\r\n]*\S)\s*$'))[1]),
            lower($8::text)
        ) > 0
    )
    AND (
        $9::bigint IS NULL
        OR EXISTS (
            SELECT FROM jobctl.job_attempts AS given
            WHERE given.run_id = $9::bigint
                AND given.attempt = $10::integer
                AND given.cause = attempt.cause
                AND given.error_type IS NOT DISTINCT FROM attempt.error_type
        )
    )
ORDER BY attempt.finished_at DESC, attempt.run_id DESC, attempt.attempt DESC
LIMIT $11::bigint
