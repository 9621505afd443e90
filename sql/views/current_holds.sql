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
WHERE coalesce(held_until > now(), true);
