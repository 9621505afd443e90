-- Dead runs in the order of their ids.
-- $1  ids
-- A run that was deleted meanwhile is missing. Texts are cut, because workers may write long ones.
SELECT
    run.id,
    run.job_type,
    run.queue,
    run.attempts,
    run.max_attempts + run.uncounted_attempts AS max_attempts,
    run.error_type,
    left(run.last_error, 10000) AS last_error,
    run.idempotency_key,
    run.failed_at,
    run.finished_at,
    run.settled_at,
    run.created_at,
    run.share,
    attempt.worker,
    run.enqueued_by
FROM unnest($1::bigint[]) WITH ORDINALITY AS wanted (id, place)
JOIN jobctl.job_runs AS run ON run.id = wanted.id
LEFT JOIN jobctl.job_attempts AS attempt
    ON attempt.run_id = run.id
    AND attempt.attempt = run.attempts
ORDER BY wanted.place
