-- Enqueues a run of a definition in the caller's transaction. The definition's values apply where
-- the arguments are NULL. If a run with the same key, job and payload exists, it returns that run,
-- unless on_conflict says otherwise.
--
-- Returns
--   id              the run; NULL for `dropped`, and after a refusal
--   result          `enqueued`, `existing` or `replaced`; `dropped` if the definition is full and
--                   drops new runs; NULL after a refusal
--   code, reason    the SQLSTATE and the text of a refusal. They contain no more than the errors of
--                   `enqueue`: if a run of another job has the key, only that the key is taken
--   status          of an existing run
--   due_at          of an existing run that is queued for a later time than this enqueue asked for
--
-- All checks come before the INSERT: the error of a CHECK shows the whole row with its payload, to
-- the caller and in the server's log. No EXCEPTION block guards the INSERT, because that costs a
-- subtransaction. An error of the INSERT could show only values of the caller.
--
-- If another open transaction has the key, the function waits for it, but not longer than
-- lock_timeout.
CREATE OR REPLACE FUNCTION jobctl.try_enqueue(
    job text,
    payload jsonb,
    key text,
    run_at timestamptz,
    run_in interval,
    priority integer,
    queue text,
    max_attempts integer,
    timeout interval,
    backoff text,
    key_scope text,
    on_conflict text DEFAULT NULL,
    debounce interval DEFAULT NULL,
    debounce_max interval DEFAULT NULL,
    expires_in interval DEFAULT NULL,
    share text DEFAULT NULL,
    lock text DEFAULT NULL,
    worker text DEFAULT NULL,
    traceparent text DEFAULT NULL,
    caller jobctl.caller DEFAULT CURRENT_USER,
    OUT id bigint,
    OUT result text,
    OUT code text,
    OUT reason text,
    OUT status text,
    OUT due_at timestamptz
)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
SET lock_timeout = '2s'
AS $$
#variable_conflict use_column
DECLARE
    definition jobctl.job_definitions;
    expires_at timestamptz;
    replaces boolean :=
        coalesce(try_enqueue.on_conflict = 'replace', try_enqueue.debounce IS NOT NULL);
    is_full boolean := false;
    payload_bytes integer;
    is_backoff boolean;
    refusal record;
BEGIN
    SELECT * INTO definition FROM jobctl.job_definitions WHERE name = try_enqueue.job;
    payload := coalesce(try_enqueue.payload, '{}');
    -- In seconds: a comparison of intervals counts 360 days a year, but the seconds of a timeout
    -- 365.25. So an interval with years and negative days could pass the check as short, and last
    -- long.
    timeout := extract(epoch FROM try_enqueue.timeout) * interval '1 second';
    refusal := jobctl.enqueue_refusal(
        job,
        definition,
        jobctl.exceeded_limit(definition, queue, priority, max_attempts, timeout, backoff),
        key,
        caller
    );
    code := refusal.code;
    reason := refusal.reason;
    IF code IS NOT NULL THEN
        RETURN;
    END IF;
    -- A statement of its own: an expression that contains this call is slow, even if it does not
    -- reach the call.
    IF backoff <> definition.backoff THEN
        is_backoff := jobctl.is_backoff(backoff);
    END IF;
    payload_bytes := octet_length(payload::text);
    reason := jobctl.wrong_value(
        definition, payload, payload_bytes, key, run_at, run_in, queue, max_attempts, timeout,
        backoff, is_backoff, key_scope, on_conflict, debounce, debounce_max, expires_in, share,
        lock, worker, traceparent, caller
    );
    IF reason IS NOT NULL THEN
        code := '22023';
        RETURN;
    END IF;
    -- In seconds, because the length of a month or a day depends on the time that it is added to.
    run_in := extract(epoch FROM try_enqueue.run_in) * interval '1 second';
    debounce := extract(epoch FROM try_enqueue.debounce) * interval '1 second';
    debounce_max := extract(epoch FROM try_enqueue.debounce_max) * interval '1 second';
    expires_in := extract(epoch FROM coalesce(try_enqueue.expires_in, definition.expires))
        * interval '1 second';
    run_at := coalesce(run_at, now() + coalesce(run_in, debounce), now());
    expires_at := run_at + expires_in;
    -- Not in the past: claims begin with the earliest run_at, so the new run would start before
    -- runs that are due already.
    run_at := greatest(run_at, now());
    IF definition.max_waiting IS NOT NULL AND definition.when_full <> 'drop_oldest' THEN
        -- Count the waiting runs, in at most max_waiting entries of indexes. With a stored number,
        -- all enqueues and claims of the job would write the same row, and wait for each other.
        -- OFFSET skips all of these runs but the last: one is found if max_waiting runs wait.
        PERFORM
        FROM jobctl.waiting_runs(definition.name, definition.max_waiting)
        OFFSET definition.max_waiting - 1;
        is_full := FOUND;
    END IF;
    -- Tries again if the run with the key was deleted or ended between the two statements, or if
    -- another program inserted a row with this id. If all five ids are taken, the sequence is
    -- behind its table.
    FOR try IN 1..5 LOOP
        IF replaces THEN
            -- If the definition is full, no new run can take the key of a running run.
            id := jobctl.replace_waiting(
                definition.name, key, payload, run_at, debounce_max, expires_at, share, lock,
                worker, traceparent, takes_key => NOT is_full
            );
            IF id IS NOT NULL THEN
                result := 'replaced';
                RETURN;
            END IF;
        END IF;
        INSERT INTO jobctl.job_runs AS run (
            definition_id,
            job_type,
            payload,
            queue,
            priority,
            run_at,
            max_attempts,
            timeout,
            backoff,
            idempotency_key,
            key_scope,
            expires_at,
            share,
            lock,
            worker,
            traceparent,
            enqueued_by
        )
        SELECT
            definition.id,
            definition.name,
            try_enqueue.payload,
            coalesce(try_enqueue.queue, definition.queue),
            coalesce(try_enqueue.priority, definition.priority),
            try_enqueue.run_at,
            coalesce(try_enqueue.max_attempts, definition.max_attempts),
            try_enqueue.timeout,
            coalesce(try_enqueue.backoff, definition.backoff),
            try_enqueue.key,
            coalesce(try_enqueue.key_scope, 'retained'),
            expires_at,
            try_enqueue.share,
            try_enqueue.lock,
            try_enqueue.worker,
            try_enqueue.traceparent,
            -- A run of a hook belongs to the schema's owner. An enqueuer can end a run, to make
            -- room for its own. It must not read the output of that run's hook, or let the hook
            -- wait.
            CASE WHEN try_enqueue.key ~ '^jobctl-hook-' THEN CURRENT_USER ELSE SESSION_USER END
        WHERE NOT is_full
        ON CONFLICT DO NOTHING
        RETURNING run.id INTO try_enqueue.id;
        IF FOUND THEN
            result := 'enqueued';
            IF definition.when_full = 'drop_oldest' AND definition.max_waiting IS NOT NULL THEN
                PERFORM jobctl.drop_oldest(definition.name, definition.max_waiting);
            END IF;
            RETURN;
        END IF;
        SELECT answer.*
        INTO id, result, code, reason, status, due_at
        FROM jobctl.key_conflict(
            definition.name,
            payload,
            key,
            coalesce(key_scope, 'retained'),
            CASE WHEN replaces THEN 'replace' ELSE on_conflict END,
            run_at
        ) AS answer;
        IF FOUND THEN
            RETURN;
        END IF;
        IF is_full AND definition.when_full = 'drop_new' THEN
            result := 'dropped';
            -- `dropped` is not a status, so last_ended_at and last_status stay as they are: no run
            -- ended.
            PERFORM jobctl.count_attempts(
                runs => ARRAY[NULL]::bigint[],
                job_types => ARRAY[definition.name],
                statuses => '{dropped}',
                outcomes => '{dropped}',
                run_times => ARRAY[NULL]::float8[],
                wait_times => ARRAY[NULL]::float8[]
            );
            RETURN;
        ELSIF is_full THEN
            code := 'JC008';
            reason := format(
                'definition `%s` is full, its max_waiting is %s; try again later',
                try_enqueue.job,
                definition.max_waiting
            );
            RETURN;
        END IF;
    END LOOP;
    -- If another run has the last id, the sequence is behind its table. Otherwise a trigger skipped
    -- the row.
    PERFORM jobctl.require_written('job_runs', chosen => 1, written => count(*))
    FROM jobctl.job_runs AS run
    WHERE run.id = currval('jobctl.job_runs_id_seq');
    code := 'JC007';
    reason := 'the sequence of jobctl.job_runs is behind its table; `jobctl doctor` prints the '
        'statement that corrects it';
END
$$;
