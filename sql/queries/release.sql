-- running -> queued: gives back claims that were never started; their attempts do not count and
-- leave no history. Whoever asked meanwhile to cancel gets that instead.
-- $1  worker    $2  run ids    $3  attempts
-- A row per run that is still held: somebody has it locked; try again. Zero rows: all are given back, or were lost.
WITH held AS MATERIALIZED (
    SELECT run.id
    FROM unnest($2::bigint[], $3::integer[]) AS unstarted (id, attempt)
    JOIN jobctl.job_runs AS run ON run.id = unstarted.id
    WHERE run.status = 'running'
        AND run.locked_by = $1::text
        AND run.attempts = unstarted.attempt
),
-- Waiting for a locked row would keep all the others.
free AS MATERIALIZED (
    SELECT run.id
    FROM jobctl.job_runs AS run
    WHERE run.id = ANY (ARRAY(SELECT held.id FROM held))
    FOR NO KEY UPDATE SKIP LOCKED
),
released AS (
    UPDATE jobctl.job_runs AS run
    SET
        status = CASE WHEN run.cancel_requested_at IS NULL THEN 'queued' ELSE 'cancelled' END,
        finished_at = CASE WHEN run.cancel_requested_at IS NULL THEN NULL ELSE now() END,
        attempts = run.attempts - 1,
        locked_by = NULL,
        locked_until = NULL,
        updated_at = now()
    FROM unnest($2::bigint[], $3::integer[]) AS unstarted (id, attempt)
    WHERE run.id = unstarted.id
        AND run.id = ANY (ARRAY(SELECT free.id FROM free))
        AND run.status = 'running'
        AND run.locked_by = $1::text
        AND run.attempts = unstarted.attempt
)
SELECT held.id
FROM held
WHERE held.id NOT IN (SELECT free.id FROM free)
