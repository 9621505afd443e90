-- A run that asks for a later attempt holds its job from then on, while it waits for that attempt:
-- not after its end or deletion, nor if an operator gave it another time. If `held_at` is still to
-- come, the database's clock was ahead, and the hold does not count. The hold of a person does
-- until its end.
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
-- OFFSET: otherwise the planner may read all pending runs instead.
LEFT JOIN LATERAL (
    SELECT run.run_at
    FROM jobctl.job_runs AS run
    WHERE run.id = hold.run_id
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
