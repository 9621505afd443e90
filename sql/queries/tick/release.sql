-- running -> queued: releases claims that were never started. Their attempts do not count and leave
-- no history. A run that an operator asked to cancel, or whose live key a newer run took, is
-- cancelled instead.
-- $1  worker    $2  ids    $3  attempts    $4  claimed_at
-- $5  locked: ids of runs to skip, see locked.sql
-- If the answer to a release is lost, it is sent again. Meanwhile a tick may have claimed the same
-- attempt number, so the times are compared as in finish.sql.
-- One row, without a value. Nothing is written for a run whose lease is lost.
WITH released AS (
    UPDATE jobctl.job_runs AS run
    SET
        status = CASE
            WHEN run.cancel_requested_at IS NULL AND run.key_scope <> 'replaced' THEN 'queued'
            ELSE 'cancelled'
        END,
        finished_at = CASE
            WHEN run.cancel_requested_at IS NULL AND run.key_scope <> 'replaced' THEN NULL
            ELSE now()
        END,
        attempts = run.attempts - 1,
        locked_by = NULL,
        locked_until = NULL,
        updated_at = now()
    FROM unnest($2::bigint[], $3::integer[], $4::timestamptz[])
        AS unstarted (id, attempt, claimed_at)
    WHERE run.id = unstarted.id
        AND run.id <> ALL ($5::bigint[])
        AND run.status = 'running'
        AND run.locked_by = $1::text
        AND run.attempts = unstarted.attempt
        AND run.started_at = unstarted.claimed_at
    RETURNING run.id, run.status
)
SELECT jobctl.follow_up(array_agg(released.id))
FROM released
WHERE released.status = 'cancelled'
