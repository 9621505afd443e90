-- Gives a waiting run with a live key a new payload, a new expiry, and a new time, which for
-- debounced runs is at most `debounce_max` after its creation. A share, a lock, a worker and a
-- trace replace the old one unless they are NULL. The run becomes that of the newest login, which
-- gave the payload. Returns the run's id. Waits for an open claim of the run. A failed run keeps
-- its backoff.
--
-- Returns NULL if no run of the job waits with this key. If a run of the job is running with it,
-- and `takes_key` is true, that run loses the key, so that a new run can have it.
CREATE OR REPLACE FUNCTION jobctl.replace_waiting(
    job text,
    key text,
    payload jsonb,
    run_at timestamptz,
    debounce_max interval,
    expires_at timestamptz,
    share text,
    lock text,
    worker text,
    traceparent text,
    takes_key boolean
)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $$
#variable_conflict use_column
DECLARE
    replaced bigint;
BEGIN
    UPDATE jobctl.job_runs AS run
    SET
        payload = replace_waiting.payload,
        run_at = greatest(
            least(replace_waiting.run_at, run.created_at + replace_waiting.debounce_max),
            -- A due run keeps its place. No other run becomes due in the past, see try_enqueue.
            least(run.run_at, now()),
            CASE run.status WHEN 'failed' THEN run.run_at END
        ),
        expires_at = replace_waiting.expires_at,
        share = coalesce(replace_waiting.share, run.share),
        lock = coalesce(replace_waiting.lock, run.lock),
        worker = coalesce(replace_waiting.worker, run.worker),
        traceparent = coalesce(replace_waiting.traceparent, run.traceparent),
        enqueued_by = SESSION_USER,
        updated_at = now()
    WHERE run.idempotency_key = replace_waiting.key
        AND run.key_scope = 'live'
        AND run.status IN ('blocked', 'queued', 'failed')
        AND run.job_type = replace_waiting.job
    RETURNING run.id INTO replaced;
    IF NOT FOUND AND takes_key THEN
        UPDATE jobctl.job_runs AS run
        SET
            key_scope = 'replaced',
            updated_at = now()
        WHERE run.idempotency_key = replace_waiting.key
            AND run.key_scope = 'live'
            AND run.status = 'running'
            AND run.job_type = replace_waiting.job;
    END IF;
    RETURN replaced;
EXCEPTION WHEN integrity_constraint_violation THEN
    -- Its DETAIL would show the row, and so the payload, to the caller and in the server's log.
    RAISE EXCEPTION USING ERRCODE = SQLSTATE, MESSAGE = SQLERRM;
END
$$;
