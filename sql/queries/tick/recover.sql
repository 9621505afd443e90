-- running, lease expired -> cancelled if an operator asked for that or a newer run took the live
-- key, else dead if no attempt is left, else failed.
-- $1  ids    $2  attempts    $3  waits, seconds    $4  error
-- A row per recovered run. A worker that renewed its lease in time keeps its run.
WITH expired AS (
    SELECT *
    FROM unnest($1::bigint[], $2::integer[], $3::float8[]) AS expired (id, attempt, backoff)
),
free AS MATERIALIZED (
    SELECT
        run.id,
        run.locked_by,
        run.started_at,
        run.locked_until,
        run.live_output,
        expired.attempt,
        expired.backoff
    FROM jobctl.job_runs AS run
    JOIN expired ON expired.id = run.id
    WHERE run.status = 'running'
        AND run.attempts = expired.attempt
        AND run.locked_until < now()
        -- A worker that can't write a locked row keeps its lease in job_locked_runs, but only while
        -- the lease still lasts. So this snapshot, which is later than now(), contains every lease
        -- that was kept in time. A worker that gets its answer after the old lease ended has
        -- stopped the job, see src/execute/stop.rs.
        AND EXISTS (
            SELECT FROM jobctl.leases AS lease
            WHERE lease.id = run.id
                AND lease.is_lost
        )
    FOR NO KEY UPDATE OF run SKIP LOCKED
),
recovered AS (
    UPDATE jobctl.job_runs AS run
    SET
        status = CASE
            WHEN run.cancel_requested_at IS NOT NULL OR run.key_scope = 'replaced' THEN 'cancelled'
            WHEN run.attempts >= run.max_attempts + run.uncounted_attempts THEN 'dead'
            ELSE 'failed'
        END,
        run_at = CASE
            WHEN run.cancel_requested_at IS NULL
                AND run.key_scope <> 'replaced'
                AND run.attempts < run.max_attempts + run.uncounted_attempts
                THEN now() + make_interval(secs => free.backoff)
            ELSE run.run_at
        END,
        locked_by = NULL,
        locked_until = NULL,
        live_output = NULL,
        last_error = $4::text,
        error_type = 'lease_expired',
        failed_at = now(),
        finished_at = CASE
            WHEN run.cancel_requested_at IS NOT NULL
                OR run.key_scope = 'replaced'
                OR run.attempts >= run.max_attempts + run.uncounted_attempts
                THEN now()
        END,
        updated_at = now()
    FROM free
    WHERE run.id = free.id
        AND run.status = 'running'
        AND run.attempts = free.attempt
        AND run.locked_until < now()
    RETURNING
        run.id,
        run.job_type,
        run.status,
        run.expires_at <= run.run_at AS expires_first
),
history AS (
    INSERT INTO jobctl.job_attempts (
        run_id,
        attempt,
        worker,
        started_at,
        finished_at,
        outcome,
        error_type,
        error,
        output,
        output_bytes,
        output_truncated
    )
    SELECT
        free.id,
        free.attempt,
        free.locked_by,
        coalesce(free.started_at, free.locked_until),
        now(),
        'lease_expired',
        'lease_expired',
        $4::text,
        free.live_output,
        coalesce(octet_length(free.live_output), 0),
        free.live_output IS NOT NULL
    FROM free
    JOIN recovered ON recovered.id = free.id
    ON CONFLICT (run_id, attempt) DO NOTHING
    RETURNING run_id
),
counted AS MATERIALIZED (
    SELECT jobctl.count_attempts(
        array_agg(recovered.job_type),
        array_agg(recovered.status),
        array_agg('lease_expired'::text),
        array_agg(NULL::float8),
        array_agg(NULL::float8)
    )
    FROM recovered
),
followed AS MATERIALIZED (
    SELECT jobctl.follow_up(array_agg(recovered.id))
    FROM recovered
    WHERE recovered.status IN ('dead', 'cancelled')
        -- Writes the history before the function reads it.
        AND (SELECT count(*) FROM history) >= 0
)
SELECT
    recovered.id,
    recovered.status,
    coalesce(recovered.expires_first, false) AS expires_first
FROM recovered
CROSS JOIN counted
CROSS JOIN followed
