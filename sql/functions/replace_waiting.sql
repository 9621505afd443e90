-- Gives the waiting run of a job with this live key a new payload, a new time and a new expiry, and
-- returns its id. Internal: only jobctl calls it.
--
--   debounce_max    the new time is at most this long after the run's creation
--   share, lock, worker, traceparent    NULL: the run keeps its old value
--   takes_key       if no run waits: whether to take the key from a running run of the job, so that
--                   a new run can have it
--
-- Returns NULL if no such run waits. The replaced run belongs to the login that gave the new
-- payload. A failed run still does not start before its backoff ends. If another transaction is
-- claiming the run, the function waits for that transaction.
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
            -- A due run keeps its place in the order of claims. No other run gets a past time,
            -- which would put it before runs that are due already.
            least(run.run_at, now()),
            -- The end of the backoff. `greatest` ignores the NULL of other runs.
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
    -- Raise the error without its DETAIL, which shows the row with its payload to the caller and in
    -- the server's log.
    RAISE EXCEPTION USING ERRCODE = SQLSTATE, MESSAGE = SQLERRM;
END
$$;
