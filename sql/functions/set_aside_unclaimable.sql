-- Tries to claim each of these runs as a claim does it, and undoes that. A run that a trigger or a
-- constraint rejects, or for which a trigger makes the UPDATE skip it, is put off, and one that
-- can't be read ends dead. Returns these runs with the error, and the error of that second change
-- if it was rejected, too. `slow` is the error of runs whose claim took too long: it is not tried
-- again. A function, because one statement a run would be slow.
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
                    IF NOT FOUND THEN
                        PERFORM jobctl.require_written('job_runs', 1, 0);
                    END IF;
                END IF;
                -- The run can be claimed.
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
            code := '57014';
            message := slow;
        END IF;
        BEGIN
            IF is_dead THEN
                -- This does not touch the payload.
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
                PERFORM jobctl.require_written('job_runs', 1, 0);
            END IF;
        EXCEPTION WHEN OTHERS THEN
            second_code := SQLSTATE;
            second_message := SQLERRM;
        END;
        RETURN NEXT;
    END LOOP;
END
$$;
