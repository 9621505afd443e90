-- Puts off a run that can't be claimed, and records the reason. The status stays.
-- $1  run id    $2  reason    $3  seconds
-- Zero rows: the run is not due any more.
UPDATE jobctl.job_runs AS run
SET
    run_at = now() + make_interval(secs => $3::float8),
    last_error = $2::text,
    updated_at = now()
WHERE run.id = $1::bigint
    AND run.status IN ('queued', 'failed')
    AND run.run_at <= now()
