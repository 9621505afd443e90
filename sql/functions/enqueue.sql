-- Enqueues a run of a definition in the transaction of an application, and returns the run's id.
-- Returns NULL if the definition is full and drops new runs.
--
-- The application needs only the privilege to call this function: the definition says what is
-- executed. Only `job` is required. Give the other arguments by name:
--   SELECT jobctl.enqueue('send_weekly_report', '{"user_id": 5}', key => 'weekly:5:2026-01-05')
--
-- The arguments have the names of the flags of `jobctl enqueue`. Two arguments do the same as
-- others: `run_in` is `in` without the quotes that SQL needs, and after_rule => 'any_end' is
-- after_any_end => true.
--
-- Errors; the DETAIL is the job, or the key for JC004 and JC009:
--   JC003  no such definition
--   JC004  the key belongs to a run with another job or payload
--   JC007  the sequence is behind its table
--   JC008  the definition is full, or could only drop a run that `after` names
--   JC009  the key has a run, and on_conflict is `error`
--   JC010  no such run in `after`
--   22023  an argument is wrong
--   42501  the definition names other enqueuers or is a hook, or a limit is exceeded
--   55000  the definition is disabled
--   55P03  another open transaction has held the key for longer than 2 seconds
CREATE OR REPLACE FUNCTION jobctl.enqueue(
    job text,
    payload jsonb DEFAULT '{}',
    key text DEFAULT NULL,
    run_at timestamptz DEFAULT NULL,
    run_in interval DEFAULT NULL,
    priority integer DEFAULT NULL,
    queue text DEFAULT NULL,
    max_attempts integer DEFAULT NULL,
    timeout interval DEFAULT NULL,
    backoff text DEFAULT NULL,
    key_scope text DEFAULT 'retained',
    on_conflict text DEFAULT NULL,
    debounce interval DEFAULT NULL,
    debounce_max interval DEFAULT NULL,
    expires_in interval DEFAULT NULL,
    share text DEFAULT NULL,
    after bigint[] DEFAULT NULL,
    after_rule text DEFAULT 'success',
    traceparent text DEFAULT NULL,
    lock text DEFAULT NULL,
    worker text DEFAULT NULL,
    "in" interval DEFAULT NULL,
    after_any_end boolean DEFAULT false,
    or_cancel boolean DEFAULT false,
    caller jobctl.caller DEFAULT CURRENT_USER
)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    answer record;
    refusal record;
BEGIN
    IF after <> '{}' AND (on_conflict = 'replace' OR debounce IS NOT NULL) THEN
        RAISE EXCEPTION 'after excludes replace and debounce' USING ERRCODE = '22023';
    ELSIF after_rule IS NULL OR after_rule NOT IN ('success', 'any_end', 'or_cancel') THEN
        RAISE EXCEPTION 'after_rule must be success, any_end or or_cancel' USING ERRCODE = '22023';
    ELSIF (after_any_end AND or_cancel)
        OR ((after_any_end OR or_cancel) AND after_rule <> 'success')
    THEN
        RAISE EXCEPTION 'after_any_end, or_cancel and after_rule exclude each other'
            USING ERRCODE = '22023';
    ELSIF num_nonnulls("in", run_in) > 1 THEN
        RAISE EXCEPTION 'in and run_in are the same argument; leave one out'
            USING ERRCODE = '22023';
    END IF;
    after_rule := CASE
        WHEN after_any_end THEN 'any_end'
        WHEN or_cancel THEN 'or_cancel'
        ELSE after_rule
    END;
    answer := jobctl.try_enqueue(
        job, payload, key, run_at, coalesce("in", run_in), priority, queue, max_attempts, timeout,
        backoff, key_scope, on_conflict, debounce, debounce_max, expires_in, share, lock, worker,
        traceparent, caller
    );
    -- Only a new run waits for others. An existing run with the key stays as it is.
    IF answer.result = 'enqueued' AND after <> '{}' THEN
        refusal := jobctl.wait_for(
            array_fill(answer.id, ARRAY[cardinality(after)]),
            after,
            array_fill(after_rule, ARRAY[cardinality(after)]),
            caller
        );
        answer.code := refusal.code;
        answer.reason := refusal.reason;
    END IF;
    IF answer.code IS NULL THEN
        RETURN answer.id;
    END IF;
    RAISE EXCEPTION USING
        ERRCODE = answer.code,
        -- The texts of try_enqueue name run_in, also if the caller gave `in`.
        MESSAGE = CASE
            WHEN "in" IS NOT NULL AND answer.code = '22023'
                THEN replace(answer.reason, 'run_in', 'in')
            ELSE answer.reason
        END,
        DETAIL = CASE WHEN answer.code IN ('JC004', 'JC009') THEN key ELSE coalesce(job, '') END;
END
$$;
