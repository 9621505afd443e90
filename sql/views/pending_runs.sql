-- The queued and failed runs, which a worker starts when they are due. This is the definition of
-- "due": all code that shows or counts due runs uses this view, and a claim takes no other runs. An
-- expired run is not due, because the next tick cancels it.
CREATE OR REPLACE VIEW jobctl.pending_runs AS
SELECT
    id,
    job_type,
    queue,
    priority,
    status,
    run_at,
    run_at <= now() AND coalesce(expires_at > now(), true) AS is_due,
    expires_at,
    attempts,
    max_attempts + uncounted_attempts AS max_attempts,
    snoozed_attempts,
    last_error,
    failed_at,
    created_at,
    updated_at,
    worker,
    lock,
    error_type
FROM jobctl.job_runs
WHERE status IN ('queued', 'failed');
