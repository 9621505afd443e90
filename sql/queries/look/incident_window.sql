-- The ends of the first and the last attempt of the incident of a failed attempt, see incident.sql.
-- $1  run_id    $2  attempt
-- Zero rows: this attempt did not fail.
SELECT incident.first_at, incident.last_at
FROM jobctl.job_attempts AS given
CROSS JOIN LATERAL jobctl.incident(given.error_type, given.cause, given.finished_at) AS incident
WHERE given.run_id = $1::bigint
    AND given.attempt = $2::integer
    AND given.outcome IN ('failed', 'lease_expired')
