-- The history of a run, oldest attempt first.
-- $1  run id    $2  how much of each output, in characters from its end; NULL for all
-- Zero rows: no attempt has ended, or no such run.
SELECT
    attempt.attempt,
    attempt.worker,
    attempt.started_at,
    attempt.finished_at,
    attempt.outcome,
    attempt.error_type,
    attempt.error,
    attempt.exit_code,
    attempt.signal,
    attempt.http_status,
    CASE WHEN $2::integer IS NULL THEN attempt.output ELSE right(attempt.output, $2::integer) END AS output,
    attempt.output_bytes,
    attempt.output_truncated
FROM jobctl.job_attempts AS attempt
WHERE attempt.run_id = $1::bigint
ORDER BY attempt.attempt
