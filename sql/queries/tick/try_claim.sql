-- queued or failed, and due -> running, as a claim does it. The caller rolls back: the statement
-- only shows whether a trigger or constraint rejects the claim.
-- $1  worker    $2  run ids
-- Skips runs that another session has locked.
UPDATE jobctl.job_runs AS run
SET
    status = 'running',
    attempts = run.attempts + 1,
    locked_by = $1::text,
    locked_until = now() + interval '1 minute',
    started_at = now(),
    updated_at = now()
WHERE run.id = ANY (ARRAY(
    SELECT free.id
    FROM jobctl.job_runs AS free
    WHERE free.id = ANY ($2::bigint[])
        AND free.status IN ('queued', 'failed')
    FOR NO KEY UPDATE SKIP LOCKED
))
