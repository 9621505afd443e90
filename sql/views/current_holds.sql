-- A run that asks for a later attempt holds its job from then on. If that is still to come, the
-- database's clock was ahead, and the hold does not count. The hold of a person does until its end.
CREATE OR REPLACE VIEW jobctl.current_holds AS
SELECT
    id,
    scope,
    name,
    held_at,
    held_until,
    recorded_by,
    host_user,
    reason,
    run_id
FROM jobctl.job_holds
WHERE coalesce(held_until > now(), true)
    AND (run_id IS NULL OR held_at <= now() + interval '1 minute');
