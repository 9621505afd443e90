-- Failed attempts, the latest end first, with the status of their runs now.
-- $1  since    $2  until, exclusive; NULL for no bound
-- $3  jobs     $4  worker; NULL for any
-- $5  limit
-- Texts are cut, because workers may write long ones.
SELECT
    attempt.run_id,
    attempt.attempt,
    run.job_type,
    left(attempt.worker, 255) AS worker,
    attempt.finished_at,
    left(attempt.error_type, 100) AS error_type,
    left(attempt.error, 10000) AS error,
    -- The last line that is not blank.
    (regexp_match(right(attempt.output, 1000), '([^\r\n]*\S)\s*$'))[1] AS last_line,
    run.status,
    now() AS now
FROM jobctl.job_attempts AS attempt
JOIN jobctl.job_runs AS run
    ON run.id = attempt.run_id
WHERE attempt.outcome IN ('failed', 'lease_expired')
    AND attempt.finished_at >= coalesce($1::timestamptz, '-infinity')
    AND attempt.finished_at < coalesce($2::timestamptz, 'infinity')
    AND ($3::text[] IS NULL OR run.job_type = ANY ($3::text[]))
    AND ($4::text IS NULL OR attempt.worker = $4::text)
ORDER BY attempt.finished_at DESC, attempt.run_id DESC, attempt.attempt DESC
LIMIT $5::bigint
