-- The ends of the first and the last attempt of the incident of a failed attempt.
-- $1  run_id    $2  attempt
-- Zero rows: this attempt did not fail.
SELECT min(member.finished_at) AS first_at, max(member.finished_at) AS last_at
FROM jobctl.job_attempts AS given
JOIN jobctl.job_attempts AS member ON member.incident = given.incident
WHERE given.run_id = $1::bigint
    AND given.attempt = $2::integer
GROUP BY given.incident
