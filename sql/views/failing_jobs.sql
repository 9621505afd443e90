-- The jobs whose attempts have failed since their last success: how many, since when, and the run
-- that failed last. Only jobs are here whose last failed run still waits or runs. If that run is
-- dead, dead_runs has it. If it was cancelled, it will not be tried again.
--
-- `is_lasting`: the command could not be started, or its shell could not execute it (126) or find
-- it (127), so another attempt soon will fail, too.
CREATE OR REPLACE VIEW jobctl.failing_jobs AS
SELECT
    run.job_type,
    streak.failures,
    streak.since_at,
    run.id AS run_id,
    newest.attempt,
    coalesce(newest.error_type = 'spawn' OR newest.exit_code IN (126, 127), false) AS is_lasting,
    CASE WHEN run.status IN ('queued', 'failed') THEN run.run_at END AS next_attempt_at
FROM (
    -- A job can have several rows of job_figures, each with a part of its failures. The rows whose
    -- failures all came after the last success belong to one streak, so their numbers add up.
    SELECT
        sum(failed.failures_in_row)::bigint AS failures,
        min(failed.failing_since) AS since_at,
        (array_agg(failed.failing_run ORDER BY failed.last_ended_at DESC))[1] AS run_id
    FROM jobctl.job_figures AS failed
    -- The last success of the job that any row has, from the day of this row on. Earlier successes
    -- were before its failures.
    LEFT JOIN LATERAL (
        SELECT max(figures.last_succeeded_at) AS last_at
        FROM jobctl.job_figures AS figures
        WHERE figures.job_type = failed.job_type
            AND figures.day >= failed.day
    ) AS success ON true
    WHERE failed.failing_since IS NOT NULL
        AND failed.failing_since > coalesce(success.last_at, '-infinity')
    GROUP BY failed.job_type
) AS streak
JOIN jobctl.job_runs AS run ON run.id = streak.run_id
LEFT JOIN LATERAL (
    SELECT attempt.attempt, attempt.error_type, attempt.exit_code
    FROM jobctl.job_attempts AS attempt
    WHERE attempt.run_id = run.id
        AND attempt.outcome IN ('failed', 'lease_expired')
    ORDER BY attempt.attempt DESC
    LIMIT 1
) AS newest ON true
WHERE run.status IN ('blocked', 'queued', 'failed', 'running');
