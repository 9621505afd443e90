-- Enqueues a run of a definition in the caller's transaction. The definition's values apply where
-- no others are given. The same key with the same job and payload returns the same run, unless
-- on_conflict says otherwise.
--
-- Returns the run's id and a result: `enqueued`, `existing`, `replaced`, or `dropped` without an
-- id, if the definition is full and drops new runs. For an existing run, returns its status, and
-- its time if it is queued for a later time than this one. Returns the code and the reason of a
-- refusal.
-- The reason tells no more than the errors of `enqueue`: if another job's run has the key, only
-- that the key is taken. The checks are made here because a failed CHECK shows the whole row,
-- including the payload, to the caller and in the server's log. A constraint may still reject the
-- change of an existing run: then the error is raised again without that row. The INSERT is not
-- guarded: it shows values of the caller, and each guard would cost a subtransaction.
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
    beyond text;
    expires_at timestamptz;
    replaces boolean :=
        coalesce(try_enqueue.on_conflict = 'replace', try_enqueue.debounce IS NOT NULL);
    is_hook boolean;
    is_full boolean := false;
    holder record;
    size integer := octet_length(try_enqueue.payload::text);
    invisible CONSTANT text := E'['
        '\\u0001-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5'
        '\\u180b-\\u180f\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164'
        '\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb\\U0001bca0-\\U0001bca3'
        '\\U0001d173-\\U0001d17a\\U000e0000-\\U000e0fff]';
BEGIN
    SELECT * INTO definition FROM jobctl.job_definitions WHERE name = try_enqueue.job;
    IF NOT FOUND THEN
        code := 'JC003';
        reason := format('no definition `%s`', try_enqueue.job);
        RETURN;
    END IF;
    -- A comparison counts 360 days a year, a job's seconds count 365.25: an interval with years and
    -- negative days could compare as short and last long.
    timeout := extract(epoch FROM try_enqueue.timeout) * interval '1 second';
    -- The exceeded limit. An http call without its own timeout ends after 30 seconds.
    beyond := CASE
        WHEN try_enqueue.queue <> definition.queue AND 'queue' <> ALL (definition.enqueue_may_set)
            THEN 'queue'
        WHEN try_enqueue.priority < definition.priority
            AND 'priority' <> ALL (definition.enqueue_may_set)
            THEN 'priority'
        WHEN try_enqueue.max_attempts > definition.max_attempts
            AND 'max_attempts' <> ALL (definition.enqueue_may_set)
            THEN 'max_attempts'
        WHEN try_enqueue.backoff <> definition.backoff
            AND 'backoff' <> ALL (definition.enqueue_may_set)
            THEN 'backoff'
        WHEN try_enqueue.timeout IS NOT NULL
            AND 'timeout' <> ALL (definition.enqueue_may_set)
            AND try_enqueue.timeout > coalesce(
                definition.timeout,
                (definition.action ->> 'timeout')::interval,
                CASE definition.kind WHEN 'http' THEN interval '30 seconds' END
            )
            THEN 'timeout'
    END;
    -- Otherwise an enqueuer could forge alerts, and use up the rate of the real ones. A hook has no
    -- hooks: this saves the call for definitions that have some.
    is_hook := definition.enqueuers IS NULL
        AND NOT definition.has_hooks
        AND jobctl.is_hook(definition.name);
    IF beyond IS NOT NULL
        OR definition.enqueuers IS NOT NULL
        OR is_hook
        OR NOT definition.enabled
    THEN
        IF NOT definition.enabled
            -- enqueue_hooks calls as the owner.
            AND (
                try_enqueue.key ~ '^jobctl-hook-'
                OR pg_has_role(caller, CURRENT_USER, 'USAGE') IS NOT TRUE
            )
        THEN
            code := '55000';
            reason := format('definition `%s` is disabled and takes no new runs', try_enqueue.job);
            RETURN;
        END IF;
        IF jobctl.is_operator(caller) IS NOT TRUE THEN
            code := '42501';
            IF is_hook THEN
                reason := format(
                    'definition `%s` is a hook, so only ends of runs enqueue it, unless its '
                    'enqueuers name role `%s`',
                    try_enqueue.job,
                    caller
                );
                RETURN;
            ELSIF definition.enqueuers IS NOT NULL AND NOT EXISTS (
                SELECT FROM unnest(definition.enqueuers) AS enqueuer
                WHERE pg_has_role(caller, to_regrole(quote_ident(enqueuer)), 'USAGE')
            ) THEN
                reason := format(
                    'role `%s` is not among the enqueuers of definition `%s`',
                    caller,
                    try_enqueue.job
                );
                RETURN;
            ELSIF beyond IS NOT NULL THEN
                reason := format(
                    '%s exceeds the limit of definition `%s`; its enqueue_may_set does not allow '
                    'that',
                    beyond,
                    try_enqueue.job
                );
                RETURN;
            END IF;
            code := NULL;
        END IF;
    END IF;
    reason := CASE
        WHEN try_enqueue.run_at IS NOT NULL AND try_enqueue.run_in IS NOT NULL
            THEN 'run_at and run_in exclude each other'
        WHEN try_enqueue.run_at < '0001-01-01 00:00Z' OR try_enqueue.run_at >= '10000-01-01 00:00Z'
            THEN 'run_at is out of range; allowed are the years 1 to 9999'
        WHEN extract(epoch FROM try_enqueue.run_in) NOT BETWEEN 0 AND 3650 * 86400
            THEN 'run_in is out of range; allowed are 0 to 3650 days'
        WHEN try_enqueue.timeout NOT BETWEEN '1 second' AND '30 days'
            THEN 'timeout is out of range; allowed are 1 second to 30 days'
        WHEN try_enqueue.max_attempts NOT BETWEEN 1 AND 1000
            THEN 'max_attempts is out of range; allowed are 1 to 1000'
        WHEN try_enqueue.queue <> definition.queue
            AND try_enqueue.queue !~ '^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,62}$'
            THEN 'queue must be 1 to 63 letters, digits or _ . : -'
        WHEN length(try_enqueue.backoff) > 1000
            THEN 'backoff is longer than 1000 characters'
        WHEN octet_length(try_enqueue.key) NOT BETWEEN 1 AND 255
            OR try_enqueue.key ~ ('^(-|jobctl-run-| +$)|' || invisible)
            -- enqueue_hooks calls as the owner.
            OR (
                try_enqueue.key ~ '^jobctl-hook-'
                AND pg_has_role(caller, CURRENT_USER, 'USAGE') IS NOT TRUE
            )
            THEN 'key must be 1 to 255 bytes, not only blanks, without control and invisible '
                'characters, and must not begin with -, jobctl-run- or jobctl-hook-'
        WHEN try_enqueue.key_scope NOT IN ('retained', 'live')
            THEN 'key_scope must be retained or live'
        WHEN try_enqueue.key_scope = 'live' AND try_enqueue.key IS NULL
            THEN 'key_scope needs a key'
        WHEN try_enqueue.on_conflict NOT IN ('same', 'replace', 'error')
            THEN 'on_conflict must be same, replace or error'
        WHEN try_enqueue.on_conflict <> 'same' AND try_enqueue.key IS NULL
            THEN 'on_conflict needs a key'
        WHEN try_enqueue.debounce IS NOT NULL AND try_enqueue.on_conflict <> 'replace'
            THEN 'debounce replaces the waiting run, so on_conflict must be replace'
        WHEN (try_enqueue.on_conflict = 'replace' OR try_enqueue.debounce IS NOT NULL)
            AND (try_enqueue.key IS NULL OR try_enqueue.key_scope IS DISTINCT FROM 'live')
            THEN 'replace and debounce need a key with the key_scope live'
        WHEN try_enqueue.debounce IS NOT NULL
            AND num_nonnulls(try_enqueue.run_at, try_enqueue.run_in) > 0
            THEN 'debounce excludes run_at and run_in'
        WHEN extract(epoch FROM try_enqueue.debounce) NOT BETWEEN 0 AND 3650 * 86400
            THEN 'debounce is out of range; allowed are 0 to 3650 days'
        WHEN try_enqueue.debounce_max IS NOT NULL AND try_enqueue.debounce IS NULL
            THEN 'debounce_max needs debounce'
        WHEN extract(epoch FROM try_enqueue.debounce_max)
            NOT BETWEEN extract(epoch FROM try_enqueue.debounce) AND 3650 * 86400
            THEN 'debounce_max is out of range; allowed are the debounce to 3650 days'
        WHEN extract(epoch FROM try_enqueue.expires_in) NOT BETWEEN 1 AND 3650 * 86400
            THEN 'expires_in is out of range; allowed are 1 second to 3650 days'
        WHEN octet_length(try_enqueue.share) NOT BETWEEN 1 AND 255
            OR try_enqueue.share ~ ('^(-| +$)|' || invisible)
            THEN 'share must be 1 to 255 bytes, not only blanks, without control and invisible '
                'characters, and must not begin with -'
        -- Numbers with large exponents are small in jsonb but large as text, which a claim reads.
        -- Only the constraints of the table check rows that are inserted directly.
        WHEN size > 4 * 262144
            THEN 'payload is longer than 1 MiB'
        WHEN pg_column_size(try_enqueue.payload) > 8 * 262144
            THEN 'payload takes more than 2 MiB'
        -- PostgreSQL accepts these values, but no JSON reader can. Each takes more than a hundred
        -- characters.
        WHEN size > 100
            AND try_enqueue.payload
                @? 'strict $.**{64 to last} ? (@.type() == "array" || @.type() == "object")'
            THEN 'payload is nested deeper than 64'
        WHEN size > 100
            AND try_enqueue.payload @? 'strict $.** ? (@ >= 1.8e308 || @ <= -1.8e308)'
            THEN 'payload has a number out of range'
    END;
    -- Separate, because an expression that contains this call is slow even if the call is not
    -- reached. The call is slow too, so the simplest backoffs, all below thirty days, avoid it.
    IF reason IS NULL
        AND try_enqueue.backoff <> definition.backoff
        AND try_enqueue.backoff !~ '^(fixed|polynomial|exponential):[0-9]{1,2}(ms|[smh])$'
    THEN
        reason := CASE WHEN NOT jobctl.is_backoff(try_enqueue.backoff)
            THEN 'backoff must be like fixed:1m, exponential:1m..30m, polynomial:10s '
                'or list:1m,5m,30m, up to 30d'
        END;
    END IF;
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
    IF expires_at >= '10000-01-01 00:00Z' THEN
        code := '22023';
        reason := 'expires_in is out of range; the run would expire after the year 9999';
        RETURN;
    END IF;
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
            BEGIN
                id := jobctl.replace_waiting(
                    definition.name,
                    try_enqueue.key,
                    coalesce(try_enqueue.payload, '{}'),
                    run_at,
                    try_enqueue.debounce_max,
                    expires_at,
                    try_enqueue.share,
                    NOT is_full
                );
            EXCEPTION WHEN integrity_constraint_violation THEN
                RAISE EXCEPTION USING ERRCODE = SQLSTATE, MESSAGE = SQLERRM;
            END;
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
            share
        )
        SELECT
            definition.id,
            definition.name,
            coalesce(try_enqueue.payload, '{}'),
            coalesce(try_enqueue.queue, definition.queue),
            coalesce(try_enqueue.priority, definition.priority),
            try_enqueue.run_at,
            coalesce(try_enqueue.max_attempts, definition.max_attempts),
            try_enqueue.timeout,
            coalesce(try_enqueue.backoff, definition.backoff),
            try_enqueue.key,
            coalesce(try_enqueue.key_scope, 'retained'),
            expires_at,
            try_enqueue.share
        WHERE NOT is_full
        ON CONFLICT DO NOTHING
        RETURNING run.id INTO try_enqueue.id;
        IF FOUND THEN
            result := 'enqueued';
            IF definition.when_full = 'drop_oldest' AND definition.max_waiting IS NOT NULL THEN
                BEGIN
                    PERFORM jobctl.drop_oldest(definition.name, definition.max_waiting);
                EXCEPTION WHEN integrity_constraint_violation THEN
                    RAISE EXCEPTION USING ERRCODE = SQLSTATE, MESSAGE = SQLERRM;
                END;
            END IF;
            RETURN;
        END IF;
        -- A separate statement, because the INSERT can't see the run that it conflicts with.
        -- Payloads of other jobs are not compared.
        SELECT
            run.id,
            run.status,
            run.run_at,
            CASE
                WHEN run.job_type = definition.name
                    THEN run.payload = coalesce(try_enqueue.payload, '{}')
            END AS is_same
        INTO holder
        FROM jobctl.job_runs AS run
        WHERE run.idempotency_key = try_enqueue.key
            AND run.key_scope = coalesce(try_enqueue.key_scope, 'retained')
            AND (
                run.key_scope = 'retained'
                OR (
                    run.key_scope = 'live'
                    AND run.status IN ('blocked', 'queued', 'running', 'failed')
                )
            );
        IF FOUND AND holder.is_same AND NOT replaces AND on_conflict IS DISTINCT FROM 'error' THEN
            id := holder.id;
            result := 'existing';
            status := holder.status;
            -- A concurrent enqueue may have begun after this transaction.
            due_at := CASE
                WHEN holder.status = 'queued'
                    AND holder.run_at > greatest(run_at, clock_timestamp())
                    THEN holder.run_at
            END;
            RETURN;
        ELSIF FOUND AND (holder.is_same IS NULL OR NOT replaces) THEN
            code := 'JC004';
            reason := format(
                'key `%s` belongs to a run with another job or payload',
                try_enqueue.key
            );
            IF on_conflict = 'error' THEN
                code := 'JC009';
                reason := format('key `%s` already has a run', try_enqueue.key);
            END IF;
            RETURN;
        END IF;
        IF is_full AND definition.when_full = 'drop_new' THEN
            result := 'dropped';
            PERFORM jobctl.count_dropped(definition.name, 1);
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
    code := 'JC007';
    reason := 'the sequence of jobctl.job_runs is behind its table; `jobctl doctor` prints the '
        'statement that corrects it';
END
$$;
