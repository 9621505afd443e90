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
            AND (run.status <> 'dead' OR run.error_type IS NOT DISTINCT FROM member.error_type)
    ),
    ARRAY[]::bigint[]
) AS ids
FROM jobctl.job_attempts AS given
JOIN jobctl.job_attempts AS member ON member.incident = given.incident
JOIN jobctl.job_runs AS run
    ON run.id = member.run_id
WHERE given.run_id = $1::bigint
    AND given.attempt = $2::integer
GROUP BY given.run_id
UNION ALL
SELECT ARRAY[run.id]
FROM jobctl.job_runs AS run
WHERE run.id = $1::bigint
    AND $2::integer = 0
    AND run.status = 'dead'
    AND NOT EXISTS (
        SELECT
        FROM jobctl.job_attempts AS attempt
        WHERE attempt.run_id = run.id
            AND attempt.attempt = run.attempts
            AND attempt.outcome IN ('failed', 'lease_expired')
            AND attempt.error_type IS NOT DISTINCT FROM run.error_type
    )
