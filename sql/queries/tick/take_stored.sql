-- Takes a row from job_locked_runs and locks its run, so that finish.sql can record the result in
-- the same transaction.
-- $1  id    $2  attempt    $3  claimed_at
-- One row: the result, and how many seconds ago it was stored. A NULL result: the row had only a
-- lease. Zero rows: another session has locked the run, or has taken the row.
WITH lockable AS MATERIALIZED (
    SELECT run.id
    FROM jobctl.job_runs AS run
    WHERE run.id = $1::bigint
    FOR NO KEY UPDATE SKIP LOCKED
)
DELETE FROM jobctl.job_locked_runs AS kept
WHERE kept.run_id = $1::bigint
    AND kept.attempt = $2::integer
    AND kept.started_at = $3::timestamptz
    AND (
        EXISTS (SELECT FROM lockable)
        -- If the run was deleted, its row is of no use: delete it, too.
        OR NOT EXISTS (SELECT FROM jobctl.job_runs AS run WHERE run.id = $1::bigint)
    )
RETURNING
    kept.worker,
    kept.result,
    date_part('epoch', now() - kept.written_at) AS stored_ago
