-- The due runs of limited definitions that are within the limits, locked. Skips runs that another
-- session has locked.
-- $1  definitions that lock_limited.sql has locked, so that no other claim counts at the same time
-- $2  queues, empty for all    $3  maximum number per definition    $4  ids of excluded runs
SELECT waiting.id
FROM jobctl.job_definitions AS definition
CROSS JOIN LATERAL (
    SELECT run.id
    FROM jobctl.job_runs AS run
    WHERE run.status IN ('queued', 'failed')
        AND run.job_type = definition.name
        AND run.job_type NOT IN ('shell', 'http')
        AND run.run_at <= now()
        AND coalesce(run.expires_at > now(), true)
        AND run.id <> ALL ($4::bigint[])
        AND (cardinality($2::text[]) = 0 OR run.queue = ANY ($2::text[]))
        AND NOT EXISTS (
            SELECT FROM jobctl.current_holds AS hold
            WHERE (hold.scope, hold.name) IN (('job', run.job_type), ('queue', run.queue))
        )
        AND NOT EXISTS (
            SELECT FROM jobctl.job_runs AS replaced
            WHERE replaced.status = 'running'
                AND replaced.key_scope = 'replaced'
                AND replaced.idempotency_key = run.idempotency_key
        )
    ORDER BY run.priority, run.run_at, run.id
    LIMIT greatest(
        0,
        least(
            $3::integer,
            definition.most_running - (
                SELECT count(*)
                FROM jobctl.job_runs AS run
                WHERE run.status = 'running'
                    AND run.job_type = definition.name
            ),
            -- The generic cell rate algorithm (ITU-T I.371).
            definition.most_at_once
            - ceil(
                extract(epoch FROM greatest(definition.rate_next_at - now(), interval '0'))
                / extract(epoch FROM definition.rate_interval)
            )
        )
    )
    FOR NO KEY UPDATE SKIP LOCKED
) AS waiting
WHERE definition.id = ANY ($1::bigint[])
