-- Finds out which of these runs can't be claimed, and sets those aside, so that they do not stop
-- the claims of other runs. Tries to claim each run in a subtransaction as a claim does, and undoes
-- that. Internal: only jobctl calls it.
--   cannot be claimed    a trigger or a constraint rejects the claim, or a trigger skips the row:
--                        the run is put off
--   cannot be read       its payload or action can't be read as text: the run ends dead
--
--   slow    the error of runs whose claim took too long: these are put off without a try; NULL: try
--           each run
--
-- Returns a row per run that can't be claimed or read, with the error. `second_code` and
-- `second_message` are the error of setting it aside, if the database rejects that, too.
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
    SET CONSTRAINTS ALL IMMEDIATE;
    FOREACH id IN ARRAY runs LOOP
        is_dead := true;
        second_code := NULL;
        second_message := NULL;
        IF slow IS NULL THEN
            BEGIN
                -- Reads the texts that a claim reads. If this fails, is_dead stays true.
                PERFORM octet_length(run.payload::text), octet_length(definition.action::text)
                FROM jobctl.job_runs AS run
                LEFT JOIN jobctl.job_definitions AS definition
                    ON definition.name = run.job_type
                WHERE run.id = set_aside_unclaimable.id;
                is_dead := false;
                PERFORM
                FROM jobctl.job_runs AS free
                WHERE free.id = set_aside_unclaimable.id
                    AND free.status IN ('queued', 'failed')
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
                -- The run can be claimed. This error undoes the claim.
                RAISE EXCEPTION USING ERRCODE = 'JC000';
            EXCEPTION
                WHEN SQLSTATE 'JC000' THEN
                    CONTINUE;
                WHEN OTHERS THEN
                    code := SQLSTATE;
                    message := SQLERRM;
            END;
        ELSE
            is_dead := false;
            -- query_canceled: the claim took longer than a statement may.
            code := '57014';
            message := slow;
        END IF;
        BEGIN
            IF is_dead THEN
                -- This does not read the payload.
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
