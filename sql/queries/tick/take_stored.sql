-- Takes a stored result, so that finish.sql records it in the same transaction. Locks its run.
-- $1  id    $2  attempt    $3  claimed_at
-- A row: the result, NULL for a lease alone, and how long ago it was stored. Zero rows: another
-- session has locked the run, or has taken the result.
WITH free AS MATERIALIZED (
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
        EXISTS (SELECT FROM free)
        OR NOT EXISTS (SELECT FROM jobctl.job_runs AS run WHERE run.id = $1::bigint)
    )
RETURNING
    kept.worker,
    kept.result,
    date_part('epoch', now() - kept.written_at) AS stored_ago
