-- Holds the jobs of these runs until they are due again, if their definitions say so. This
-- transaction has recorded that an attempt of each run on this worker asked for a later one. A job
-- that is held as long or longer stays as it is.
--
-- SECURITY DEFINER: a role that ticks may hold no other job, and only as long as its run waits.
CREATE OR REPLACE FUNCTION jobctl.hold_snoozed(runs bigint[], worker text)
RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF runs IS NULL OR NOT EXISTS (
        SELECT FROM jobctl.job_definitions AS definition
        WHERE definition.snooze = 'job'
    ) THEN
        RETURN;
    END IF;
    -- A result must not wait for another tick that deletes the same.
    DELETE FROM jobctl.job_holds AS hold
    WHERE hold.id IN (
        SELECT ended.id
        FROM jobctl.job_holds AS ended
        WHERE ended.held_until <= now()
        FOR UPDATE SKIP LOCKED
    );
    INSERT INTO jobctl.job_holds (scope, name, held_until, host_user, reason)
    SELECT
        'job',
        run.job_type,
        max(run.run_at),
        hold_snoozed.worker,
        format('run %s asked for a later attempt', max(run.id))
    FROM jobctl.job_runs AS run
    JOIN jobctl.job_definitions AS definition
        ON definition.name = run.job_type
        AND definition.snooze = 'job'
    WHERE run.id = ANY (hold_snoozed.runs)
        AND run.status = 'queued'
        -- In this transaction, and not in an earlier one.
        AND run.failed_at = now()
        AND run.run_at > now()
        AND NOT EXISTS (
            SELECT FROM jobctl.current_holds AS hold
            WHERE hold.scope = 'job'
                AND hold.name = run.job_type
                AND coalesce(hold.held_until >= run.run_at, true)
        )
    GROUP BY run.job_type;
END
$$;
