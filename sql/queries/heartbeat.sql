-- running -> running: renews the leases a tick holds.
-- $1  worker    $2  run ids    $3  attempts    $4  lease, seconds
-- A row per run. `renewed` false with `held` true: somebody has the row locked; try again. `held`
-- false: the lease is somebody else's, or the run is gone.
WITH mine AS (
    SELECT *
    FROM unnest($2::bigint[], $3::integer[]) AS mine (id, attempt)
),
-- Waiting for a locked row would be worse than skipping it: the new lease would be counted from
-- before the wait, and all the others would wait too.
free AS MATERIALIZED (
    SELECT run.id
    FROM jobctl.job_runs AS run
    JOIN mine ON mine.id = run.id
    WHERE run.status = 'running'
        AND run.locked_by = $1::text
        AND run.attempts = mine.attempt
    FOR NO KEY UPDATE OF run SKIP LOCKED
),
renewed AS (
    UPDATE jobctl.job_runs AS run
    SET locked_until = now() + make_interval(secs => $4::float8)
    FROM free
    JOIN mine ON mine.id = free.id
    WHERE run.id = free.id
        AND run.status = 'running'
        AND run.locked_by = $1::text
        AND run.attempts = mine.attempt
    RETURNING run.id
)
SELECT
    mine.id,
    renewed.id IS NOT NULL AS renewed,
    run.id IS NOT NULL AS held,
    run.cancel_requested_at IS NOT NULL AS cancel_requested
FROM mine
LEFT JOIN renewed ON renewed.id = mine.id
LEFT JOIN jobctl.job_runs AS run
    ON run.id = mine.id
    AND run.status = 'running'
    AND run.locked_by = $1::text
    AND run.attempts = mine.attempt
