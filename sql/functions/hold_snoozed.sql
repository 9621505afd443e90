-- Holds the jobs of snoozed runs until these runs are due again, if the definition has snooze =
-- 'job'. A snoozed run is one whose attempt asked for a later attempt. end_runs calls this function
-- after it has recorded these attempts of `worker`. Internal: only jobctl calls it.
--
-- A job that is already held for as long, or longer, keeps its hold. A shorter hold by a run is
-- replaced. Also deletes all holds that have ended.
CREATE OR REPLACE FUNCTION jobctl.hold_snoozed(runs bigint[], worker text)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM jobctl.job_definitions AS definition
        WHERE definition.snooze = 'job'
    ) THEN
        RETURN;
    END IF;
    WITH snoozed AS (
        SELECT
            run.job_type,
            max(run.run_at) AS until,
            -- The run that is due last.
            (array_agg(run.id ORDER BY run.run_at DESC, run.id DESC))[1] AS run_id
        FROM jobctl.job_runs AS run
        JOIN jobctl.job_definitions AS definition
            ON definition.name = run.job_type
            AND definition.snooze = 'job'
        WHERE run.id = ANY (hold_snoozed.runs)
            AND run.run_at > now()
        GROUP BY run.job_type
    ),
    removed AS (
        DELETE FROM jobctl.job_holds AS hold
        WHERE hold.id IN (
            SELECT old.id
            FROM jobctl.job_holds AS old
            -- Shorter holds of these jobs, which runs made.
            LEFT JOIN snoozed
                ON old.scope = 'job'
                AND old.name = snoozed.job_type
                AND old.run_id IS NOT NULL
                AND old.held_until < snoozed.until
            WHERE old.held_until <= now()
                OR snoozed.job_type IS NOT NULL
            -- SKIP LOCKED: a result must not wait for another tick that deletes the same hold.
            FOR UPDATE OF old SKIP LOCKED
        )
    )
    INSERT INTO jobctl.job_holds (scope, name, held_until, host_user, reason, run_id)
    SELECT
        'job',
        snoozed.job_type,
        snoozed.until,
        hold_snoozed.worker,
        format('run %s asked for a later attempt', snoozed.run_id),
        snoozed.run_id
    FROM snoozed
    WHERE NOT EXISTS (
        SELECT FROM jobctl.current_holds AS hold
        WHERE hold.scope = 'job'
            AND hold.name = snoozed.job_type
            -- A hold without an end lasts longer than any other.
            AND coalesce(hold.held_until >= snoozed.until, true)
    );
END
$$;
