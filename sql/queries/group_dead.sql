-- Dead runs counted by job and error type, the most first, and what the last of each to die said.
-- $1  job      $2  queue    $3  key    $4  error type; NULL for any
-- $5  since    $6  until, which is not included; NULL for no bound. What counts is when a run died.
-- Zero rows: none matches.
WITH counted AS (
    SELECT
        run.job_type,
        run.error_type,
        count(*) AS runs,
        min(run.finished_at) AS first_died_at,
        max(run.finished_at) AS last_died_at,
        (array_agg(run.id ORDER BY run.finished_at DESC, run.id DESC))[1] AS newest_id
    FROM jobctl.job_runs AS run
    WHERE run.status = 'dead'
        AND ($1::text IS NULL OR run.job_type = $1::text)
        AND ($2::text IS NULL OR run.queue = $2::text)
        AND ($3::text IS NULL OR run.idempotency_key = $3::text)
        AND ($4::text IS NULL OR run.error_type = $4::text)
        AND ($5::timestamptz IS NULL OR run.finished_at >= $5::timestamptz)
        AND ($6::timestamptz IS NULL OR run.finished_at < $6::timestamptz)
    GROUP BY run.job_type, run.error_type
)
SELECT
    counted.job_type,
    left(counted.error_type, 100) AS error_type,
    counted.runs,
    counted.first_died_at,
    counted.last_died_at,
    counted.newest_id,
    left(newest.last_error, 10000) AS last_error,
    now() AS now
FROM counted
JOIN jobctl.job_runs AS newest ON newest.id = counted.newest_id
ORDER BY counted.runs DESC, counted.last_died_at DESC, counted.newest_id DESC
