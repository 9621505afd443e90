-- Records an effect in the caller's transaction. Returns true if the effect is new. Returns false
-- if it was recorded before: then the caller must not repeat it.
--
-- Errors:
--   22023  the key or the result can't be recorded
--   42501  another role recorded the key, and the caller is not a member of that role. Also for
--          operators and superusers: otherwise a role could make another role skip its effect
--          unnoticed
--   55P03  the key is in use: another open transaction records it, or `once` has begun it in an
--          attempt that is running now
--   55000  the key is open: `once` has begun it, and it is unknown whether the effect happened
CREATE OR REPLACE FUNCTION jobctl.record_effect(
    key text,
    result text DEFAULT NULL,
    run_id bigint DEFAULT NULL,
    attempt integer DEFAULT NULL,
    caller jobctl.caller DEFAULT CURRENT_USER
)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
SET lock_timeout = '2s'
AS $$
DECLARE
    recorded record;
BEGIN
    IF octet_length(record_effect.result) > 8192 THEN
        RAISE EXCEPTION 'result is longer than 8 KiB'
            USING ERRCODE = '22023';
    END IF;
    IF record_effect.key ~ '^ *$' THEN
        RAISE EXCEPTION 'key must be 1 to 255 bytes, not all blanks'
            USING ERRCODE = '22023';
    END IF;
    FOR try IN 1..5 LOOP
        BEGIN
            INSERT INTO jobctl.job_effects (key, result, run_id, attempt, recorded_by, completed_at)
            VALUES (
                record_effect.key,
                record_effect.result,
                record_effect.run_id,
                record_effect.attempt,
                caller,
                now()
            )
            ON CONFLICT DO NOTHING;
        -- Raise only the message: the DETAIL of a constraint's error shows the row.
        EXCEPTION WHEN integrity_constraint_violation THEN
            RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = SQLERRM;
        END;
        IF FOUND THEN
            RETURN true;
        END IF;
        SELECT effect.* INTO recorded
        FROM jobctl.job_effects AS effect
        WHERE effect.key = record_effect.key;
        IF FOUND AND jobctl.is_own_effect(caller, recorded.recorded_by) IS NOT TRUE THEN
            RAISE EXCEPTION 'effect `%` was recorded by another role; an operator can settle it',
                key
                USING ERRCODE = '42501';
        ELSIF recorded.completed_at IS NOT NULL THEN
            RETURN false;
        -- In the caller's own attempt, the key is open, not in use.
        ELSIF (recorded.run_id, recorded.attempt) IS DISTINCT FROM (run_id, attempt)
            AND jobctl.is_running(recorded.run_id, recorded.attempt)
        THEN
            RAISE EXCEPTION 'effect `%` is in use by run %, which is running; '
                'try again after its end',
                key,
                recorded.run_id
                USING ERRCODE = '55P03';
        ELSIF recorded.key IS NOT NULL THEN
            RAISE EXCEPTION 'effect `%` was begun, and it is unknown whether it happened; '
                'settle it with `jobctl once --settle`',
                key
                USING ERRCODE = '55000';
        END IF;
        -- The effect was removed between the two statements, so try again. Or a trigger skips the
        -- row, which require_written reports in the end.
    END LOOP;
    PERFORM jobctl.require_written('job_effects', chosen => 1, written => 0);
END
$$;
