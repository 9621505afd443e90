-- queued or failed, and due -> dead: a run whose payload or action can't be read, so no tick can
-- claim it. The statement does not touch the payload.
-- $1  run id    $2  reason
-- Zero rows: the run is not due any more.
WITH ended AS (
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
    RETURNING run.job_type
)
SELECT jobctl.count_attempts(
    ARRAY[ended.job_type],
    ARRAY['dead'],
    ARRAY[NULL::text],
    ARRAY[NULL::float8],
    ARRAY[NULL::float8]
)
FROM ended
