-- Returns the recorded result of an effect. NULL: the effect is not recorded, is not completed, or
-- has no result. Raises 42501 if another role recorded the effect, unless the caller is a member of
-- that role or an operator.
CREATE OR REPLACE FUNCTION jobctl.effect_result(key text, caller jobctl.caller DEFAULT CURRENT_USER)
RETURNS text
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $$
DECLARE
    recorded record;
BEGIN
    SELECT effect.recorded_by, effect.result INTO recorded
    FROM jobctl.job_effects AS effect
    WHERE effect.key = effect_result.key;
    IF FOUND AND jobctl.may_settle(caller, recorded.recorded_by) IS NOT TRUE THEN
        RAISE EXCEPTION 'effect `%` was recorded by another role; an operator can read it', key
            USING ERRCODE = '42501';
    END IF;
    RETURN recorded.result;
END
$$;
