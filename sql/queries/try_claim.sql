-- queued or failed, and due -> running: as a claim does it, to see whether that is refused; to be rolled back.
-- $1  worker    $2  run ids
-- What somebody has locked is passed over.
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
