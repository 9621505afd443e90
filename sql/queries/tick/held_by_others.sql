-- The number of runs that a worker holds, without the claims of the tick that asks.
-- $1  worker    $2  run ids    $3  attempts    $4  times of the claims, as in finish.sql
-- Always one row.
SELECT count(*)::integer AS held
FROM jobctl.job_runs AS run
WHERE run.status = 'running'
    AND run.locked_by = $1::text
    AND (
        run.locked_until > now()
        OR EXISTS (
            SELECT FROM jobctl.job_locked_runs AS kept
            WHERE kept.run_id = run.id
                AND kept.attempt = run.attempts
                AND kept.started_at = run.started_at
                AND kept.locked_until > now()
        )
    )
    -- Its job has ended, and only its row is locked.
    AND NOT EXISTS (
        SELECT FROM jobctl.job_locked_runs AS ended
        WHERE ended.run_id = run.id
            AND ended.attempt = run.attempts
            AND ended.started_at = run.started_at
            AND ended.result IS NOT NULL
    )
    AND NOT EXISTS (
        SELECT
        FROM unnest($2::bigint[], $3::integer[], $4::timestamptz[])
            AS mine (id, attempt, claimed_at)
        WHERE mine.id = run.id
            AND mine.attempt = run.attempts
            AND mine.claimed_at = run.started_at
    )
