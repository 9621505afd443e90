-- Dead runs counted by job and error type, the largest group first, and the error of the newest run
-- of each.
-- $1  job      $2  queue    $3  key    $4  error_type; NULL for any
-- $5  since    $6  until, exclusive; NULL for no bound. Both compare the time of death.
-- $7  unsettled: whether settled runs are left out
WITH counted AS (
    SELECT
        run.job_type,
        run.error_type,
        count(*) AS runs,
        min(run.finished_at) AS first_finished_at,
        max(run.finished_at) AS last_finished_at,
        (array_agg(run.id ORDER BY run.finished_at DESC, run.id DESC))[1] AS newest_id
    FROM jobctl.job_runs AS run
    WHERE run.status = 'dead'
        AND (run.settled_at IS NULL OR NOT $7::boolean)
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
    counted.first_finished_at,
    counted.last_finished_at,
    counted.newest_id,
    left(newest.last_error, 10000) AS last_error,
    now() AS now
FROM counted
JOIN jobctl.job_runs AS newest ON newest.id = counted.newest_id
ORDER BY counted.runs DESC, counted.last_finished_at DESC, counted.newest_id DESC
