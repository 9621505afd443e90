-- Enqueues a run of a definition in the caller's transaction. The definition's values apply where
-- no others are given. The same key with the same job and payload returns the same run, unless
-- on_conflict says otherwise.
--
-- Returns the run's id and a result: `enqueued`, `existing`, `replaced`, or `dropped` without an
-- id, if the definition is full and drops new runs. For an existing run, returns its status, and
-- its time if it is queued for a later time than this one. Returns the code and the reason of a
-- refusal.
-- The reason tells no more than the errors of `enqueue`: if another job's run has the key, only
-- that the key is taken. The checks come before the INSERT because a failed CHECK shows the whole
-- row, including the payload, to the caller and in the server's log. The INSERT is not guarded: it
-- shows values of the caller, and each guard would cost a subtransaction.
--
-- If another open transaction has the key, waits for it, but no longer than the lock timeout.
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
    -- A comparison counts 360 days a year, a job's seconds count 365.25: an interval with years and
    -- negative days could compare as short and last long.
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
    -- Separate, because an expression that contains this call is slow even if it is not reached.
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
    -- Without months and days, whose length depends on the time that they are added to.
    run_in := extract(epoch FROM try_enqueue.run_in) * interval '1 second';
    debounce := extract(epoch FROM try_enqueue.debounce) * interval '1 second';
    debounce_max := extract(epoch FROM try_enqueue.debounce_max) * interval '1 second';
    expires_in := extract(epoch FROM coalesce(try_enqueue.expires_in, definition.expires))
        * interval '1 second';
    run_at := coalesce(run_at, now() + coalesce(run_in, debounce), now());
    expires_at := run_at + expires_in;
    -- Claims begin with the earliest run_at: a time in the past would pass the runs that wait.
    run_at := greatest(run_at, now());
    IF definition.max_waiting IS NOT NULL AND definition.when_full <> 'drop_oldest' THEN
        -- Reads at most max_waiting entries of indexes. A number in a row would be written by all
        -- enqueues and claims of the job, and they would wait for each other.
        PERFORM
        FROM jobctl.waiting_runs(definition.name, definition.max_waiting)
        OFFSET definition.max_waiting - 1;
        is_full := FOUND;
    END IF;
    -- Tries again if the run with the key vanished or ended between the two statements, or if a
    -- program chose this id itself. If the sequence is behind its table, all five ids are taken.
    FOR try IN 1..5 LOOP
        IF replaces THEN
            id := jobctl.replace_waiting(
                definition.name, key, payload, run_at, debounce_max, expires_at, share, lock,
                worker, traceparent, NOT is_full
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
            -- A hook belongs to the owner: an enqueuer that ends a run, to make room for its own,
            -- must not read the hook's output or let the hook wait.
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
            -- No run ended that could be the job's last one.
            PERFORM jobctl.count_attempts(
                ARRAY[NULL]::bigint[],
                ARRAY[definition.name],
                '{dropped}',
                '{dropped}',
                ARRAY[NULL]::float8[],
                ARRAY[NULL]::float8[]
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
    -- The last id is taken, unless a trigger skipped the row.
    PERFORM jobctl.require_written('job_runs', 1, count(*))
    FROM jobctl.job_runs AS run
    WHERE run.id = currval('jobctl.job_runs_id_seq');
    code := 'JC007';
    reason := 'the sequence of jobctl.job_runs is behind its table; `jobctl doctor` prints the '
        'statement that corrects it';
END
$$;
