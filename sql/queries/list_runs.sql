-- Runs by their ids, in the order in which these are given; how long the last attempt took, or takes.
-- $1  run ids    $2  whether that length is wanted; it takes a look at the history for each
-- A run that was deleted meanwhile is missing. Texts are cut, because a worker may write long ones.
SELECT
    run.id,
    run.job_type,
    run.status,
    run.queue,
    run.priority,
    run.attempts,
    run.max_attempts,
    left(run.error_type, 100) AS error_type,
    left(run.last_error, 10000) AS last_error,
    run.idempotency_key,
    run.run_at,
    run.created_at,
    run.started_at,
    run.failed_at,
    run.finished_at,
    round(extract(epoch FROM CASE
        WHEN run.status = 'running' THEN now() - run.started_at
        ELSE attempt.finished_at - attempt.started_at
    END)::numeric, 3)::float8 AS run_seconds,
    now() AS now
FROM unnest($1::bigint[]) WITH ORDINALITY AS wanted (id, place)
JOIN jobctl.job_runs AS run ON run.id = wanted.id
LEFT JOIN jobctl.job_attempts AS attempt
    ON attempt.run_id = run.id
    AND attempt.attempt = run.attempts
    AND $2::boolean
ORDER BY wanted.place
