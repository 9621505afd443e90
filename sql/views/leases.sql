-- The claims of running runs, and how long their leases last.
--
-- `locked_until`: the end of the lease. It is in the run, or in job_locked_runs if another session
-- had locked the run. The later of the two counts.
-- `has_result`: the attempt has ended, but its result is in job_locked_runs, because it could not
-- be written to the run: the row was locked, or the update took too long.
-- `is_lost`: the lease has ended without a result. The next tick recovers the run.
-- `is_ahead`: the lease ends more than a minute later than any tick may ask for, which is a day,
-- because the database's clock was ahead. The next tick shortens the lease.
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
