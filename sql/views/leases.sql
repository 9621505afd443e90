-- The claims of running runs. The lease of a claim is in its run, or in job_locked_runs while the
-- run is locked; the later end counts. A claim with a result is over, but the result could not be
-- recorded: its row is locked, or that took too long. A lease is lost if it has ended without a
-- result: the next tick recovers its run. `is_ahead`: it ends later than any tick may ask for,
-- because the database's clock was ahead; the next tick shortens it.
CREATE OR REPLACE VIEW jobctl.leases AS
SELECT
    run.id,
    run.job_type,
    run.attempts AS attempt,
    run.locked_by AS worker,
    run.started_at,
    greatest(run.locked_until, kept.locked_until) AS locked_until,
    kept.result IS NOT NULL AS has_result,
    greatest(run.locked_until, kept.locked_until) < now() AND kept.result IS NULL AS is_lost,
    CASE WHEN kept.result IS NOT NULL THEN kept.written_at END AS result_at,
    greatest(run.locked_until, kept.locked_until) > now() + interval '1 day 1 minute' AS is_ahead
FROM jobctl.job_runs AS run
LEFT JOIN jobctl.job_locked_runs AS kept
    ON kept.run_id = run.id
    AND kept.attempt = run.attempts
    AND kept.started_at = run.started_at
WHERE run.status = 'running';
