-- Lists the attempts of a run that have ended, the oldest first.
-- $1  id    $2  characters from the end of each output; NULL for all
SELECT
    attempt.attempt,
    attempt.worker,
    attempt.started_at,
    attempt.finished_at,
    -- If the database's clock was ahead at the start, the run time is 0, and not negative.
    round(
        extract(
            epoch FROM greatest(attempt.finished_at, attempt.started_at) - attempt.started_at
        )::numeric,
        3
    )::float8 AS run_time_seconds,
    attempt.outcome,
    attempt.error_type,
    attempt.error,
    attempt.exit_code,
    attempt.signal,
    attempt.http_status,
    -- Without $2, right() returns NULL.
    coalesce(right(attempt.output, $2::integer), attempt.output) AS output,
    attempt.output_bytes,
    attempt.output_truncated
FROM jobctl.job_attempts AS attempt
WHERE attempt.run_id = $1::bigint
ORDER BY attempt.attempt
