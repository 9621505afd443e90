-- The pending runs with a lock of their own, not only that of their definition. The index
-- job_runs_waiting_for_lock has exactly these. `coalesce` is part of its condition, and keeps the
-- planner from reading all pending runs instead.
CREATE OR REPLACE VIEW jobctl.pending_lock_runs AS
SELECT
    id,
    job_type,
    lock COLLATE "C" AS lock,
    queue,
    priority,
    run_at,
    expires_at,
    worker,
    idempotency_key
FROM jobctl.job_runs
WHERE coalesce(status IN ('queued', 'failed'), false)
    AND lock IS NOT NULL;
