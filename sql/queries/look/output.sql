-- Reads the output of an attempt of a run. Of a running attempt, it is what its worker has sent so
-- far.
-- $1  id    $2  attempt; NULL for the running one, or else for the last finished one
-- Zero rows: no such run. A NULL attempt: the run has no such attempt, or none has begun.
SELECT
    asked.live,
    run.status IN ('blocked', 'queued', 'failed') AS waiting,
    CASE WHEN asked.live THEN run.attempts ELSE attempt.attempt END AS attempt,
    CASE WHEN asked.live THEN run.live_output ELSE attempt.output END AS output
FROM jobctl.job_runs AS run
CROSS JOIN LATERAL (
    SELECT run.status = 'running' AND run.attempts = coalesce($2::integer, run.attempts) AS live
) AS asked
LEFT JOIN jobctl.job_attempts AS attempt
    ON attempt.run_id = run.id
    AND ($2::integer IS NULL OR attempt.attempt = $2::integer)
WHERE run.id = $1::bigint
ORDER BY attempt.attempt DESC
LIMIT 1
