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
LEFT JOIN jobctl.job_runs AS run
    ON run.id = hold.run_id
    AND run.status = 'queued'
    AND run.run_at > now()
WHERE coalesce(hold.held_until > now(), true)
    -- A person may have cancelled the run, or made it due.
    AND (hold.run_id IS NULL OR run.id IS NOT NULL);
