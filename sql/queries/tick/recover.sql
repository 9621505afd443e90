-- Recovers runs whose leases expired: running -> failed, or dead if no attempt is left. A run is
-- cancelled instead if an operator asked for that, or if a newer run took its live key.
-- $1  ids    $2  attempts    $3  next_attempt_in, seconds    $4  error
-- A row per recovered run. A missing run is locked, or its worker renewed the lease in time.
WITH lockable AS MATERIALIZED (
    SELECT
        run.id,
        run.locked_by,
        run.attempts,
        run.started_at,
        run.locked_until,
        run.live_output,
        lost.next_attempt_in
    FROM jobctl.job_runs AS run
    JOIN unnest($1::bigint[], $2::integer[], $3::float8[]) AS lost (id, attempt, next_attempt_in)
        ON lost.id = run.id
        AND lost.attempt = run.attempts
    WHERE run.status = 'running'
    FOR NO KEY UPDATE OF run SKIP LOCKED
),
arrays AS (
    SELECT
        array_agg(lockable.id) AS ids,
        array_agg(lockable.locked_by) AS workers,
        array_agg(lockable.attempts) AS attempts,
        array_agg(lockable.started_at) AS claim_times,
        array_agg(lockable.next_attempt_in) AS next_attempt_in,
        array_agg($4::text) AS errors,
        array_agg(lockable.live_output) AS outputs,
        -- No constraint requires that a running run has a started_at.
        array_agg(
            extract(
                epoch FROM now() - coalesce(lockable.started_at, lockable.locked_until)
            )::float8
        ) AS started_ago
    FROM lockable
)
SELECT recovered.id, recovered.status, recovered.expires_first
FROM arrays
CROSS JOIN LATERAL jobctl.end_runs(
    way => 'lost',
    runs => arrays.ids,
    workers => arrays.workers,
    attempt_numbers => arrays.attempts,
    claim_times => arrays.claim_times,
    next_attempt_in => arrays.next_attempt_in,
    errors => arrays.errors,
    outputs => arrays.outputs,
    started_ago => arrays.started_ago
) AS ended
CROSS JOIN LATERAL unnest(ended.ids, ended.statuses, ended.expires_first)
    AS recovered (id, status, expires_first)
