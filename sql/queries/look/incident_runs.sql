-- Returns the ids of the runs whose last failed attempt is in an incident. A run that died without
-- a failed attempt is an incident of its own, with attempt 0, see list_incidents.sql.
-- $1  incident; NULL for none
-- $2  run_id    $3  attempt: the numbers in the incident's name
-- One row. Zero rows: there is no such incident.
SELECT coalesce(
    array_agg(member.run_id) FILTER (
        WHERE NOT EXISTS (
            SELECT
            FROM jobctl.job_attempts AS later
            WHERE later.run_id = member.run_id
                AND later.attempt > member.attempt
                AND later.outcome IN ('failed', 'lease_expired')
        )
            -- With another error type, the run died later, and not of this attempt.
            AND (run.status <> 'dead' OR run.error_type IS NOT DISTINCT FROM member.error_type)
    ),
    ARRAY[]::bigint[]
) AS ids
FROM jobctl.job_attempts AS member
JOIN jobctl.job_runs AS run
    ON run.id = member.run_id
WHERE member.incident = $1::text
GROUP BY member.incident
UNION ALL
-- The run of attempt 0.
SELECT ARRAY[run.id] AS ids
FROM jobctl.job_runs AS run
WHERE run.id = $2::bigint
    AND $3::integer = 0
    AND run.status = 'dead'
    AND NOT EXISTS (
        SELECT
        FROM jobctl.job_attempts AS attempt
        WHERE attempt.run_id = run.id
            AND attempt.attempt = run.attempts
            AND attempt.outcome IN ('failed', 'lease_expired')
            AND attempt.error_type IS NOT DISTINCT FROM run.error_type
    )
