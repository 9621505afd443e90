-- Reads the incident of a failed attempt, and when its first and its last attempt ended. An
-- incident is named after its first attempt, and keeps this name when that attempt is deleted.
-- $1  run_id    $2  attempt
-- Zero rows: there is no such failed attempt, and no incident with its name.
SELECT
    member.incident,
    min(member.finished_at) AS first_at,
    max(member.finished_at) AS last_at
FROM jobctl.job_attempts AS member
WHERE member.incident = coalesce(
    -- NULL if the attempt was deleted. Then it may have named an incident: RUN.ATTEMPT.
    (
        SELECT given.incident
        FROM jobctl.job_attempts AS given
        WHERE given.run_id = $1::bigint
            AND given.attempt = $2::integer
    ),
    $1::bigint || '.' || $2::integer
)
GROUP BY member.incident
