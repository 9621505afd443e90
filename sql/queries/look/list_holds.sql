-- Lists the holds that are in force, the oldest first.
SELECT
    hold.scope,
    hold.name,
    hold.held_at,
    hold.held_until,
    hold.recorded_by,
    hold.host_user,
    hold.reason,
    now() AS now
FROM jobctl.current_holds AS hold
ORDER BY hold.held_at, hold.scope, hold.name
