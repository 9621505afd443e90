-- Reads the given failed attempts, in their order, with the present status of their runs.
-- $1  run_ids    $2  attempts, arrays of equal length
-- Texts are cut, because workers may write long ones.
SELECT
    attempt.run_id,
    attempt.attempt,
    run.job_type,
    attempt.worker,
    attempt.finished_at,
    attempt.error_type,
    left(attempt.error, 10000) AS error,
    jobctl.last_line(attempt.output) AS last_line,
    run.status,
    now() AS now
FROM unnest($1::bigint[], $2::integer[]) WITH ORDINALITY AS wanted (run_id, attempt, place)
JOIN jobctl.job_attempts AS attempt
    ON attempt.run_id = wanted.run_id
    AND attempt.attempt = wanted.attempt
JOIN jobctl.job_runs AS run
    ON run.id = attempt.run_id
ORDER BY wanted.place
