-- The runs whose last failed attempt is in the incident of this attempt; no row if the attempt did
-- not fail. Attempt 0 stands for a run that died without a failed attempt, see list_incidents.sql.
-- $1  run_id    $2  attempt
SELECT coalesce(
    array_agg(member.run_id) FILTER (
        WHERE NOT EXISTS (
            SELECT
            FROM jobctl.job_attempts AS later
            WHERE later.run_id = member.run_id
                AND later.attempt > member.attempt
                AND later.outcome IN ('failed', 'lease_expired')
        )
    ),
    ARRAY[]::bigint[]
) AS ids
FROM jobctl.job_attempts AS given
CROSS JOIN LATERAL jobctl.incident(given.error_type, given.cause, given.finished_at) AS incident
JOIN jobctl.job_attempts AS member
    ON member.outcome IN ('failed', 'lease_expired')
    AND member.cause = given.cause
    AND member.error_type IS NOT DISTINCT FROM given.error_type
    AND member.finished_at BETWEEN incident.first_at AND incident.last_at
WHERE given.run_id = $1::bigint
    AND given.attempt = $2::integer
    AND given.outcome IN ('failed', 'lease_expired')
GROUP BY given.run_id
UNION ALL
SELECT ARRAY[run.id]
FROM jobctl.job_runs AS run
WHERE run.id = $1::bigint
    AND $2::integer = 0
    AND run.status = 'dead'
