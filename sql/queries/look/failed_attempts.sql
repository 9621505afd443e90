-- Lists the failed attempts that match all filters, the latest end first. Reads only columns that a
-- viewer may read.
-- $1  since    $2  until, exclusive: bounds of the attempt's end; NULL for no bound
-- $3  jobs     $4  worker    $5  queue    $6  share    $7  error_type    $8  incident
--     NULL for any
-- $9  limit; NULL for all
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
    AND ($8::text IS NULL OR attempt.incident = $8::text)
ORDER BY attempt.finished_at DESC, attempt.run_id DESC, attempt.attempt DESC
LIMIT $9::bigint
