-- queued or failed, and expired -> cancelled. Skips locked runs.
-- $1  ids
-- A row per ended run.
WITH free AS MATERIALIZED (
    SELECT run.id
    FROM jobctl.job_runs AS run
    WHERE run.id = ANY ($1::bigint[])
        AND run.status IN ('queued', 'failed')
        AND run.expires_at <= now()
    FOR NO KEY UPDATE SKIP LOCKED
),
ended AS (
    UPDATE jobctl.job_runs AS run
    SET
        status = 'cancelled',
        last_error = 'expired: it did not start in time',
        error_type = 'expired',
        finished_at = now(),
        updated_at = now()
    FROM free
    WHERE run.id = free.id
        AND run.status IN ('queued', 'failed')
    RETURNING run.id, run.job_type
),
counted AS MATERIALIZED (
    SELECT jobctl.count_attempts(
        array_agg(ended.job_type),
        array_agg('cancelled'::text),
        array_agg('expired'::text),
        array_agg(NULL::float8),
        array_agg(NULL::float8)
    )
    FROM ended
),
followed AS MATERIALIZED (
    SELECT jobctl.follow_up(array_agg(ended.id))
    FROM ended
)
SELECT ended.id
FROM ended
CROSS JOIN counted
CROSS JOIN followed
