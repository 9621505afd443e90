-- The incident of a failed attempt: all failed attempts with its error type and cause, each at most
-- 30 minutes after the one before, whatever their jobs, shares and workers. Returns its first
-- attempt, and the ends of the first and the last one; no row if no attempt failed so. The id of an
-- incident names the first attempt.
CREATE OR REPLACE FUNCTION jobctl.incident(error_type text, cause text, failed_at timestamptz)
RETURNS TABLE (run_id bigint, attempt integer, first_at timestamptz, last_at timestamptz)
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $$
    -- Steps of 30 minutes, so that few attempts are read.
    WITH RECURSIVE earlier (at, run_id, attempt) AS (
        SELECT incident.failed_at, NULL::bigint, NULL::integer
        UNION
        SELECT first.finished_at, first.run_id, first.attempt
        FROM earlier
        CROSS JOIN LATERAL (
            SELECT other.finished_at, other.run_id, other.attempt
            FROM jobctl.job_attempts AS other
            WHERE other.outcome IN ('failed', 'lease_expired')
                AND other.cause = incident.cause
                AND other.error_type IS NOT DISTINCT FROM incident.error_type
                AND other.finished_at BETWEEN earlier.at - interval '30 minutes' AND earlier.at
            ORDER BY other.finished_at, other.run_id, other.attempt
            LIMIT 1
        ) AS first
    ),
    later (at) AS (
        SELECT incident.failed_at
        UNION
        SELECT last.finished_at
        FROM later
        CROSS JOIN LATERAL (
            SELECT other.finished_at
            FROM jobctl.job_attempts AS other
            WHERE other.outcome IN ('failed', 'lease_expired')
                AND other.cause = incident.cause
                AND other.error_type IS NOT DISTINCT FROM incident.error_type
                AND other.finished_at BETWEEN later.at AND later.at + interval '30 minutes'
            ORDER BY other.finished_at DESC
            LIMIT 1
        ) AS last
    )
    SELECT earlier.run_id, earlier.attempt, earlier.at, (SELECT max(later.at) FROM later)
    FROM earlier
    WHERE earlier.run_id IS NOT NULL
    ORDER BY earlier.at, earlier.run_id, earlier.attempt
    LIMIT 1
$$;
