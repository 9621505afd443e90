-- queued or failed, and due -> dead: a run that can't be claimed because it can't be read. The
-- payload is not touched.
-- $1  run id    $2  why
-- Zero rows: it is not due any more.
UPDATE jobctl.job_runs AS run
SET
    status = 'dead',
    last_error = $2::text,
    error_type = 'bad_payload',
    failed_at = now(),
    finished_at = now(),
    updated_at = now()
WHERE run.id = $1::bigint
    AND run.status IN ('queued', 'failed')
    AND run.run_at <= now()
