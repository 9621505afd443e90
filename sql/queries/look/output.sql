-- Reads the output of an attempt of a run. If the attempt is running (`live`), reads the output
-- that its worker has sent so far.
-- $1  id    $2  attempt; NULL: the running attempt, or else the last finished one
-- One row. A NULL attempt: the run has no such attempt, or no attempt has begun. Zero rows: no such
-- run.
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
