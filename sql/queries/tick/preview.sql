-- The runs that a claim would claim now if no definition had limits, in the same order. Locks
-- nothing.
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
    run.max_attempts + run.uncounted_attempts AS max_attempts
FROM jobctl.job_runs AS run
WHERE run.status IN ('queued', 'failed')
    AND run.run_at <= now()
    AND coalesce(run.expires_at > now(), true)
    AND run.id <> ALL ($5::bigint[])
    AND ($7::bigint IS NULL OR run.id = $7::bigint)
    AND (cardinality($1::text[]) = 0 OR run.queue = ANY ($1::text[]))
    AND run.job_type <> ALL ($2::text[])
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
    AND NOT EXISTS (
        SELECT FROM jobctl.job_runs AS replaced
        WHERE replaced.status = 'running'
            AND replaced.key_scope = 'replaced'
            AND replaced.idempotency_key = run.idempotency_key
    )
ORDER BY run.priority, run.run_at, run.id
LIMIT $3::bigint
