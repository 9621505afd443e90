-- Counts these dead runs by job and error type, the largest group first, and reads the error of the
-- newest run of each group.
-- $1  ids; runs that are not dead any more do not count
WITH counted AS (
    SELECT
        run.job_type,
        run.error_type,
        count(*) AS runs,
        min(run.finished_at) AS first_finished_at,
        max(run.finished_at) AS last_finished_at,
        (array_agg(run.id ORDER BY run.finished_at DESC, run.id DESC))[1] AS newest_id
    FROM jobctl.job_runs AS run
    WHERE run.id = ANY ($1::bigint[])
        AND run.status = 'dead'
    GROUP BY run.job_type, run.error_type
)
SELECT
    counted.job_type,
    counted.error_type,
    counted.runs,
    counted.first_finished_at,
    counted.last_finished_at,
    counted.newest_id,
    left(newest.last_error, 10000) AS last_error,
    jobctl.last_line(attempt.output) AS last_line,
    now() AS now
FROM counted
JOIN jobctl.job_runs AS newest ON newest.id = counted.newest_id
LEFT JOIN jobctl.job_attempts AS attempt
    ON attempt.run_id = newest.id
    AND attempt.attempt = newest.attempts
    -- With another error type, the run ended later, for another reason.
    AND attempt.error_type IS NOT DISTINCT FROM newest.error_type
ORDER BY counted.runs DESC, counted.last_finished_at DESC, counted.newest_id DESC
