-- Raises an error if a role completes or removes an effect that another role recorded, unless
-- may_settle allows that.
CREATE OR REPLACE FUNCTION jobctl.keep_effect()
RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF jobctl.may_settle(CURRENT_USER, OLD.recorded_by) IS NOT TRUE THEN
        RAISE EXCEPTION 'effect `%` was recorded by another role; an operator can settle it',
            OLD.key
            USING ERRCODE = '42501';
    ELSIF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    RETURN NEW;
END
$$;

CREATE OR REPLACE TRIGGER effects_are_settled_by_their_recorder
    BEFORE UPDATE OR DELETE ON jobctl.job_effects
    FOR EACH ROW WHEN (OLD.recorded_by <> CURRENT_USER) EXECUTE FUNCTION jobctl.keep_effect();
