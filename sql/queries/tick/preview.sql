-- Lists the due runs that a claim would take now, in the order of claims. Ignores the limits of
-- definitions and the locks of runs and definitions.
-- $1  queues, empty for all            $2  excluded_jobs    $3  limit
-- $4  excluded_kinds of definitions    $5  excluded_runs
-- $6  worker    $7  only_run: NULL for any
SELECT
    run.id,
    run.job_type,
    run.queue,
    run.priority,
    run.run_at,
    run.attempts + 1 AS attempt,
    run.max_attempts
FROM jobctl.pending_runs AS run
WHERE run.is_due
    AND run.id <> ALL ($5::bigint[])
    AND ($7::bigint IS NULL OR run.id = $7::bigint)
    AND (cardinality($1::text[]) = 0 OR run.queue = ANY ($1::text[]))
    AND run.job_type <> ALL ($2::text[])
    AND coalesce(run.worker = $6::text, true)
    AND NOT EXISTS (
        SELECT FROM jobctl.job_definitions AS definition
        WHERE definition.name = run.job_type
            AND definition.kind = ANY ($4::text[])
    )
    AND NOT EXISTS (
        SELECT FROM jobctl.current_holds AS hold
        WHERE (hold.scope, hold.name) IN (
            ('all', ''),
            ('worker', $6::text),
            ('queue', run.queue),
            ('job', run.job_type)
        )
    )
    -- A run that took the live key of a running run (`replaced`) waits for the end of that run.
    -- `newer` is the row of `run` with its key, which the view does not have.
    AND NOT EXISTS (
        SELECT FROM jobctl.job_runs AS replaced
        JOIN jobctl.job_runs AS newer
            ON newer.idempotency_key = replaced.idempotency_key
        WHERE replaced.status = 'running'
            AND replaced.key_scope = 'replaced'
            AND newer.id = run.id
    )
ORDER BY run.priority, run.run_at, run.id
LIMIT $3::bigint
