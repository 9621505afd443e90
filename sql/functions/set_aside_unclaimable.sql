-- Finds out which of these runs can't be claimed, and sets those aside, so that they do not stop
-- the claims of other runs. Internal: only jobctl calls it.
--
-- Tries to claim each run in a subtransaction, as a claim does, and undoes that. Two kinds of runs
-- can't be claimed:
--   rejected      a trigger or a constraint rejects the claim, or a trigger skips the row: the run
--                 is put off
--   unreadable    the payload or the action can't be read as text: the run ends dead
--
-- Parameters:
--   put_off_for    how long to put off a rejected run
--   slow           NULL: try each run. A text: the claims of these runs took too long, so put all
--                  of them off without a try, with this text as the error
--
-- Returns a row per run that can't be claimed, with the error. `second_code` and `second_message`
-- are the error of setting the run aside, if the database rejects that, too.
--
-- A function, because one statement per run would be slow.
CREATE OR REPLACE FUNCTION jobctl.set_aside_unclaimable(
    worker text,
    runs bigint[],
    put_off_for interval,
    slow text
)
RETURNS TABLE (
    id bigint,
    is_dead boolean,
    code text,
    message text,
    second_code text,
    second_message text
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $$
BEGIN
    -- A deferred constraint then rejects a claim here, and not at the commit.
    SET CONSTRAINTS ALL IMMEDIATE;
    FOREACH id IN ARRAY runs LOOP
        is_dead := false;
        second_code := NULL;
        second_message := NULL;
        IF slow IS NULL THEN
            BEGIN
                -- Reads the texts that a claim reads. Only if this fails, is_dead stays true.
                is_dead := true;
                PERFORM octet_length(run.payload::text), octet_length(definition.action::text)
                FROM jobctl.job_runs AS run
                LEFT JOIN jobctl.job_definitions AS definition
                    ON definition.name = run.job_type
                WHERE run.id = set_aside_unclaimable.id;
                is_dead := false;
                -- Claims the run, unless another session has locked it.
                PERFORM
                FROM jobctl.job_runs AS run
                WHERE run.id = set_aside_unclaimable.id
                    AND run.status IN ('queued', 'failed')
                FOR NO KEY UPDATE SKIP LOCKED;
                IF FOUND THEN
                    UPDATE jobctl.job_runs AS run
                    SET
                        status = 'running',
                        attempts = run.attempts + 1,
                        locked_by = set_aside_unclaimable.worker,
                        locked_until = now() + interval '1 minute',
                        started_at = now(),
                        updated_at = now()
                    WHERE run.id = set_aside_unclaimable.id;
                    PERFORM jobctl.require_written(
                        'job_runs', chosen => 1, written => FOUND::integer
                    );
                END IF;
                -- The run can be claimed, or is locked. This error undoes the claim.
                RAISE EXCEPTION USING ERRCODE = 'JC000';
            EXCEPTION
                WHEN SQLSTATE 'JC000' THEN
                    -- The run needs nothing, so it gets no row.
                    CONTINUE;
                WHEN OTHERS THEN
                    code := SQLSTATE;
                    message := SQLERRM;
            END;
        ELSE
            -- query_canceled: the claim took longer than a statement may.
            code := '57014';
            message := slow;
        END IF;
        BEGIN
            IF is_dead THEN
                -- Does not read the payload, so it does not fail as the claim did.
                PERFORM jobctl.end_runs(
                    'unreadable',
                    ARRAY[id],
                    errors => ARRAY['cannot read runs: ' || message]
                );
            ELSE
                UPDATE jobctl.job_runs AS run
                SET
                    run_at = now() + put_off_for,
                    last_error = 'cannot claim runs: ' || message,
                    error_type = 'claim_rejected',
                    updated_at = now()
                WHERE run.id = set_aside_unclaimable.id
                    AND run.status IN ('queued', 'failed')
                    AND run.run_at <= now();
            END IF;
            IF EXISTS (
                SELECT FROM jobctl.job_runs AS run
                WHERE run.id = set_aside_unclaimable.id
                    AND run.status IN ('queued', 'failed')
                    AND run.run_at <= now()
            ) THEN
                -- The run is still due, so a trigger has skipped the row.
                PERFORM jobctl.require_written('job_runs', chosen => 1, written => 0);
            END IF;
        EXCEPTION WHEN OTHERS THEN
            second_code := SQLSTATE;
            second_message := SQLERRM;
        END;
        RETURN NEXT;
    END LOOP;
END
$$;
