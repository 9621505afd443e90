-- Enqueues many runs by the rules of try_enqueue, for `jobctl enqueue --batch`. Also enqueues runs
-- of the built-in jobs, if the role may insert rows of job_runs. Applications enqueue single runs,
-- for which try_enqueue is a third faster. Internal: only jobctl calls it.
--
--   runs     JSON objects with the fields of `NewRun` in src/store/enqueue.rs; a missing field has
--            its default
--   tries    how often to insert a run while other sessions take and release its key, as in the
--            loop of try_enqueue
--
-- Returns the answers of try_enqueue as arrays, one element a run. Ids ascend in the order of the
-- runs. For definitions with max_waiting, the function calls try_enqueue for each run.
CREATE OR REPLACE FUNCTION jobctl.enqueue_runs(
    runs jsonb[],
    tries integer DEFAULT 5,
    caller jobctl.caller DEFAULT CURRENT_USER,
    OUT ids bigint[],
    OUT results text[],
    OUT codes text[],
    OUT reasons text[],
    OUT statuses text[],
    OUT due_ats timestamptz[]
)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
SET lock_timeout = '2s'
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    -- The places in `runs` of the runs without an answer: other runs have their keys or ids.
    open integer[];
    -- The ids that were tried for these runs.
    tried bigint[];
    number integer;
    answer record;
    again record;
BEGIN
    IF has_table_privilege(caller, 'jobctl.job_runs', 'INSERT') IS NOT TRUE
        AND EXISTS (
            SELECT FROM unnest(runs) AS line (run)
            WHERE line.run ->> 'job_type' IN ('shell', 'http')
        )
    THEN
        RAISE EXCEPTION 'permission denied for table job_runs' USING ERRCODE = '42501';
    END IF;
    -- The jobs that the role may not enqueue: one check for all runs of a job.
    WITH refused AS MATERIALIZED (
        SELECT line.job, refusal.code, refusal.reason
        FROM (SELECT DISTINCT run ->> 'job_type' FROM unnest(runs) AS run) AS line (job)
        LEFT JOIN jobctl.job_definitions AS definition ON definition.name = line.job
        CROSS JOIN LATERAL
            jobctl.enqueue_refusal(line.job, definition, NULL, NULL, caller) AS refusal
        WHERE line.job NOT IN ('shell', 'http')
            AND refusal.code IS NOT NULL
    ),
    -- Each run with the values that apply to it, and the results of all checks.
    given AS (
        SELECT
            line.ordinal,
            run.job_type,
            run.share,
            run.lock,
            run.worker,
            run.traceparent,
            run.idempotency_key AS key,
            run.on_conflict,
            value.*,
            definition.id AS definition_id,
            coalesce(run.key_scope, 'retained') AS key_scope,
            coalesce(run.queue, definition.queue, 'default') AS queue,
            coalesce(run.priority, definition.priority, 0) AS priority,
            coalesce(run.max_attempts, definition.max_attempts, 10) AS max_attempts,
            coalesce(run.backoff, definition.backoff, 'exponential:1m..30m') AS backoff,
            coalesce(run.run_at, now() + coalesce(value.run_in, value.debounce), now()) AS at,
            coalesce(
                value.expires_in,
                extract(epoch FROM definition.expires) * interval '1 second'
            ) AS expires_after,
            jobctl.exceeded_limit(
                definition, run.queue, run.priority, run.max_attempts, value.timeout, run.backoff
            ) AS exceeded,
            jobctl.wrong_value(
                definition, value.payload, value.payload_bytes, run.idempotency_key,
                run.run_at, value.run_in, run.queue, run.max_attempts, value.timeout, run.backoff,
                CASE
                    WHEN run.backoff <> coalesce(definition.backoff, '')
                        THEN jobctl.is_backoff(run.backoff)
                END,
                run.key_scope, run.on_conflict, value.debounce, value.debounce_max,
                value.expires_in, run.share, run.lock, run.worker, run.traceparent, caller
            ) AS wrong,
            refused.code AS refused_code,
            refused.reason AS refused_reason,
            limited.id AS limited_id,
            limited.result,
            limited.code AS limited_code,
            limited.reason AS limited_reason,
            limited.status,
            limited.due_at
        FROM unnest(runs) WITH ORDINALITY AS line (run, ordinal)
        CROSS JOIN LATERAL jsonb_to_record(line.run) AS run (
            job_type text,
            payload jsonb,
            queue text,
            priority integer,
            run_at timestamptz,
            "in" float8,
            max_attempts integer,
            timeout float8,
            backoff text,
            expires_in float8,
            share text,
            lock text,
            worker text,
            traceparent text,
            idempotency_key text,
            key_scope text,
            on_conflict text,
            debounce float8,
            debounce_max float8
        )
        -- OFFSET 0, here and below: each value is computed once, however often it is used.
        CROSS JOIN LATERAL (
            SELECT
                -- jsonb_to_record turns the JSON null into NULL, so take it from the line.
                coalesce(run.payload, line.run -> 'payload', '{}') AS payload,
                octet_length(run.payload::text) AS payload_bytes,
                make_interval(secs => run."in") AS run_in,
                make_interval(secs => run.timeout) AS timeout,
                make_interval(secs => run.debounce) AS debounce,
                make_interval(secs => run.debounce_max) AS debounce_max,
                make_interval(secs => run.expires_in) AS expires_in
            OFFSET 0
        ) AS value
        LEFT JOIN jobctl.job_definitions AS definition ON definition.name = run.job_type
        LEFT JOIN refused ON refused.job = run.job_type
        -- try_enqueue enqueues the runs of definitions with max_waiting. This condition is in a
        -- subquery: as a condition of the join, it would not keep PostgreSQL from calling the
        -- function for the other runs.
        LEFT JOIN (
            LATERAL (
                SELECT run.job_type AS job
                WHERE definition.max_waiting IS NOT NULL
                OFFSET 0
            ) AS with_limit
            CROSS JOIN LATERAL jobctl.try_enqueue(
                with_limit.job, value.payload, run.idempotency_key, run.run_at, value.run_in,
                run.priority, run.queue, run.max_attempts, value.timeout, run.backoff,
                run.key_scope, run.on_conflict, value.debounce, value.debounce_max,
                value.expires_in, run.share, run.lock, run.worker, run.traceparent, caller
            ) AS limited
        ) ON true
        OFFSET 0
    ),
    -- Each run with its refusal, if there is one.
    checked AS (
        SELECT
            given.*,
            coalesce(
                given.limited_code,
                given.refused_code,
                CASE WHEN excess.reason IS NOT NULL THEN '42501' END,
                CASE WHEN given.wrong IS NOT NULL THEN '22023' END
            ) AS code,
            coalesce(given.limited_reason, given.refused_reason, excess.reason, given.wrong)
                AS reason
        FROM given
        -- Only a run that exceeds a limit costs this call: whether the role may exceed limits.
        CROSS JOIN LATERAL (
            SELECT CASE WHEN given.exceeded IS NOT NULL THEN (
                SELECT (
                    jobctl.enqueue_refusal(
                        given.job_type,
                        definition,
                        given.exceeded,
                        NULL,
                        caller
                    )
                ).reason
                FROM jobctl.job_definitions AS definition
                WHERE definition.id = given.definition_id
            ) END AS reason
            OFFSET 0
        ) AS excess
    ),
    -- Each run with the id of the waiting run that it has replaced, or with the id to insert.
    asked AS MATERIALIZED (
        SELECT
            replaced.*,
            -- Choose the ids here: RETURNING does not say which run got which default id.
            CASE
                WHEN num_nonnulls(replaced.code, replaced.result, replaced.replaced_id) = 0
                    THEN nextval('jobctl.job_runs_id_seq')
            END AS id
        FROM (
            SELECT
                checked.*,
                CASE
                    WHEN checked.on_conflict = 'replace'
                        AND num_nonnulls(checked.code, checked.result) = 0
                        THEN jobctl.replace_waiting(
                            checked.job_type,
                            checked.key,
                            checked.payload,
                            -- Not in the past, here and below, see try_enqueue.
                            greatest(checked.at, now()),
                            checked.debounce_max,
                            checked.at + checked.expires_after,
                            checked.share,
                            checked.lock,
                            checked.worker,
                            checked.traceparent,
                            takes_key => true
                        )
                END AS replaced_id
            FROM checked
        ) AS replaced
    ),
    inserted AS (
        INSERT INTO jobctl.job_runs AS run (
            id,
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
            traceparent
        )
        SELECT
            asked.id,
            asked.definition_id,
            asked.job_type,
            asked.payload,
            asked.queue,
            asked.priority,
            greatest(asked.at, now()),
            asked.max_attempts,
            asked.timeout,
            asked.backoff,
            asked.key,
            asked.key_scope,
            asked.at + asked.expires_after,
            asked.share,
            asked.lock,
            asked.worker,
            asked.traceparent
        FROM asked
        WHERE asked.id IS NOT NULL
        ORDER BY asked.id
        ON CONFLICT DO NOTHING
        RETURNING run.id
    )
    SELECT
        array_agg(answered.id) AS ids,
        array_agg(answered.result) AS results,
        array_agg(answered.code) AS codes,
        array_agg(answered.reason) AS reasons,
        array_agg(answered.status) AS statuses,
        array_agg(answered.due_at) AS due_ats,
        array_agg(answered.ordinal)
            FILTER (WHERE answered.result IS NULL AND answered.code IS NULL) AS open,
        array_agg(answered.tried)
            FILTER (WHERE answered.result IS NULL AND answered.code IS NULL) AS tried
    INTO ids, results, codes, reasons, statuses, due_ats, open, tried
    FROM (
        SELECT
            asked.ordinal,
            asked.id AS tried,
            CASE
                WHEN asked.replaced_id IS NOT NULL THEN asked.replaced_id
                WHEN new.is_inserted THEN asked.id
                ELSE asked.limited_id
            END AS id,
            CASE
                WHEN asked.replaced_id IS NOT NULL THEN 'replaced'
                WHEN new.is_inserted THEN 'enqueued'
                ELSE asked.result
            END AS result,
            asked.code,
            asked.reason,
            asked.status,
            asked.due_at
        FROM asked
        CROSS JOIN LATERAL (
            -- Not a join: the planner expects ten runs, and would compare each with each.
            SELECT asked.id IN (SELECT inserted.id FROM inserted) AS is_inserted
            OFFSET 0
        ) AS new
        ORDER BY asked.ordinal
    ) AS answered;
    IF open IS NULL THEN
        RETURN;
    END IF;
    -- Answers the open runs whose keys other runs have.
    FOR answer IN
        SELECT place.number, found.*
        FROM unnest(open) AS place (number)
        CROSS JOIN LATERAL jsonb_to_record(runs[place.number]) AS run (
            job_type text,
            payload jsonb,
            run_at timestamptz,
            "in" float8,
            idempotency_key text,
            key_scope text,
            on_conflict text
        )
        CROSS JOIN LATERAL jobctl.key_conflict(
            run.job_type,
            coalesce(run.payload, runs[place.number] -> 'payload', '{}'),
            run.idempotency_key,
            coalesce(run.key_scope, 'retained'),
            run.on_conflict,
            coalesce(run.run_at, now() + make_interval(secs => run."in"), now())
        ) AS found
    LOOP
        ids[answer.number] := answer.id;
        results[answer.number] := answer.result;
        codes[answer.number] := answer.code;
        reasons[answer.number] := answer.reason;
        statuses[answer.number] := answer.status;
        due_ats[answer.number] := answer.due_at;
    END LOOP;
    open := ARRAY(
        SELECT place.number
        FROM unnest(open) AS place (number)
        WHERE results[place.number] IS NULL
            AND codes[place.number] IS NULL
    );
    IF open = '{}' THEN
        RETURN;
    ELSIF tries < 2 THEN
        -- If other runs have these ids, the sequence is behind its table. Otherwise a trigger
        -- skipped the rows.
        PERFORM jobctl.require_written('job_runs', cardinality(tried), count(*))
        FROM jobctl.job_runs AS run
        WHERE run.id = ANY (tried);
        FOREACH number IN ARRAY open LOOP
            codes[number] := 'JC007';
            reasons[number] := 'the sequence of jobctl.job_runs is behind its table; `jobctl '
                'doctor` prints the statement that corrects it';
        END LOOP;
        RETURN;
    END IF;
    -- Tries the runs again that are still open, and copies the answers to their places.
    again := jobctl.enqueue_runs(
        ARRAY(SELECT runs[place.number] FROM unnest(open) AS place (number)),
        tries - 1,
        caller
    );
    FOR place IN 1..cardinality(open) LOOP
        ids[open[place]] := again.ids[place];
        results[open[place]] := again.results[place];
        codes[open[place]] := again.codes[place];
        reasons[open[place]] := again.reasons[place];
        statuses[open[place]] := again.statuses[place];
        due_ats[open[place]] := again.due_ats[place];
    END LOOP;
END
$$;
