-- The holds that are in force. A person's hold is in force until it ends or is released.
--
-- A run that asks for a later attempt may hold its job until that attempt. Such a hold is in force
-- while its run waits for this attempt: it ends when the run ends, is deleted, or gets another time
-- from an operator. If its `held_at` is more than a minute in the future, the database's clock was
-- ahead, and the hold does not count.
CREATE OR REPLACE VIEW jobctl.current_holds AS
SELECT
    hold.id,
    hold.scope,
    hold.name,
    hold.held_at,
    hold.held_until,
    hold.recorded_by,
    hold.host_user,
    hold.reason,
    hold.run_id
FROM jobctl.job_holds AS hold
-- OFFSET 0: otherwise the planner may read all pending runs, not only those of holds.
LEFT JOIN LATERAL (
    SELECT run.run_at
    FROM jobctl.job_runs AS run
    WHERE run.id = hold.run_id
        -- A run that asked for a later attempt is queued until then, with that time in run_at.
        AND run.status = 'queued'
    OFFSET 0
) AS asked ON true
WHERE coalesce(hold.held_until > now(), true)
    AND (
        hold.run_id IS NULL
        OR (
            asked.run_at = hold.held_until
            AND hold.held_at <= now() + interval '1 minute'
        )
    );
