-- The output of an attempt of a run.
-- $1  run id    $2  attempt; NULL for the last finished one
-- Zero rows: no such run. A NULL attempt: the run has no such attempt, or none has finished.
SELECT attempt.attempt, attempt.output
FROM jobctl.job_runs AS run
LEFT JOIN jobctl.job_attempts AS attempt
    ON attempt.run_id = run.id
    AND ($2::integer IS NULL OR attempt.attempt = $2::integer)
WHERE run.id = $1::bigint
ORDER BY attempt.attempt DESC
LIMIT 1
