-- Reads the given runs in their order, with the duration of the last attempt.
-- $1  ids
-- A run that was deleted meanwhile is missing. Texts are cut, because workers may write long ones.
WITH usual AS MATERIALIZED (
    -- Only of jobs with running runs, to estimate when these end.
    SELECT job.job_type, usual.median_seconds
    FROM (
        SELECT DISTINCT run.job_type
        FROM jobctl.job_runs AS run
        WHERE run.id = ANY ($1::bigint[])
            AND run.status = 'running'
    ) AS job
    CROSS JOIN LATERAL jobctl.usual_run_time(job.job_type) AS usual
)
SELECT
    run.id,
    run.job_type,
    run.status,
    run.queue,
    run.priority,
    run.attempts,
    run.max_attempts + run.uncounted_attempts AS max_attempts,
    run.error_type,
    left(run.last_error, 10000) AS last_error,
    run.idempotency_key,
    run.run_at,
    run.created_at,
    run.started_at,
    run.failed_at,
    run.finished_at,
    -- If the database's clock was ahead at the start, the run time is 0, and not negative.
    round(extract(epoch FROM CASE
        WHEN run.status = 'running' THEN greatest(now(), run.started_at) - run.started_at
        ELSE greatest(attempt.finished_at, attempt.started_at) - attempt.started_at
    END)::numeric, 3)::float8 AS run_time_seconds,
    run.share,
    coalesce(run.locked_by, attempt.worker) AS worker,
    run.enqueued_by,
    run.settled_at,
    CASE
        WHEN attempt.outcome IN ('failed', 'lease_expired')
            -- With another error type, the run ended later, for another reason.
            AND attempt.error_type IS NOT DISTINCT FROM run.error_type
            THEN jobctl.last_line(attempt.output)
    END AS last_line,
    CASE
        WHEN run.status = 'running'
            THEN run.started_at + make_interval(secs => usual.median_seconds)
    END AS usual_end_at,
    substr(run.traceparent, 4, 32) AS trace_id,
    coalesce(definition.lock_name, run.lock) AS lock,
    run.worker AS only_worker,
    run.schedule,
    -- The columns above `now` are the fields of `list`.
    now() AS now,
    extract(epoch FROM coalesce(run.timeout, definition.timeout))::float8 AS timeout,
    run.backoff
FROM unnest($1::bigint[]) WITH ORDINALITY AS wanted (id, place)
JOIN jobctl.job_runs AS run ON run.id = wanted.id
LEFT JOIN jobctl.job_definitions AS definition ON definition.name = run.job_type
LEFT JOIN jobctl.job_attempts AS attempt
    ON attempt.run_id = run.id
    AND attempt.attempt = run.attempts
LEFT JOIN usual ON usual.job_type = run.job_type
ORDER BY wanted.place
