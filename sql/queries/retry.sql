-- failed, dead, cancelled or queued -> queued, due now; where it is asked for also running -> queued,
-- which takes the run from its holder. Attempts that are used up are granted once more, as many as at first.
-- $1  run ids    $2  statuses that a run may be moved from
-- A row per id that exists: its status before, and whether it was retried. One whose status allows it
-- and that was not, has its live key taken.
WITH asked AS MATERIALIZED (
    SELECT run.id, run.status, run.attempts, run.locked_by, run.started_at, run.idempotency_key, run.key_scope
    FROM jobctl.job_runs AS run
    WHERE run.id = ANY ($1::bigint[])
    ORDER BY run.id
    FOR NO KEY UPDATE
),
retried AS (
    UPDATE jobctl.job_runs AS run
    SET
        status = 'queued',
        run_at = now(),
        max_attempts = CASE
            WHEN run.attempts >= run.max_attempts
                -- Not more than a run may have at all.
                THEN least(run.attempts + coalesce(run.granted_attempts, run.max_attempts), 1000000)
            ELSE run.max_attempts
        END,
        granted_attempts = coalesce(run.granted_attempts, run.max_attempts),
        locked_by = NULL,
        locked_until = NULL,
        cancel_requested_at = NULL,
        finished_at = NULL,
        updated_at = now()
    FROM asked
    WHERE run.id = asked.id
        AND asked.status = ANY ($2::text[])
        AND asked.status <> 'succeeded'
        -- A live key is taken by the run that came after this one had ended. Where one comes while
        -- this statement runs, job_runs_key refuses all of it, and it is sent again to see that run.
        AND NOT EXISTS (
            SELECT FROM jobctl.job_runs AS heir
            WHERE heir.idempotency_key = run.idempotency_key
                AND heir.key_scope = 'live'
                AND heir.status IN ('queued', 'running', 'failed')
                AND run.key_scope = 'live'
                AND heir.id <> run.id
        )
        -- Of several that ended with it, the newest has it again.
        AND NOT EXISTS (
            SELECT FROM asked AS newer
            WHERE newer.idempotency_key = run.idempotency_key
                AND newer.key_scope = 'live'
                AND newer.status IN ('dead', 'cancelled')
                AND run.key_scope = 'live'
                AND newer.id > run.id
        )
    RETURNING run.id
),
history AS (
    INSERT INTO jobctl.job_attempts (run_id, attempt, worker, started_at, finished_at, outcome, error_type, error)
    SELECT
        asked.id,
        asked.attempts,
        asked.locked_by,
        coalesce(asked.started_at, now()),
        now(),
        'interrupted',
        'interrupted',
        'taken from its holder by retry --force'
    FROM asked
    JOIN retried ON retried.id = asked.id
    WHERE asked.status = 'running'
    ON CONFLICT (run_id, attempt) DO NOTHING
)
SELECT
    asked.id,
    asked.status,
    retried.id IS NOT NULL AS granted
FROM asked
LEFT JOIN retried ON retried.id = asked.id
