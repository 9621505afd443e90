-- Deletes what belongs to deleted runs: their attempts, and the rows of job_dependencies that say
-- for which runs they waited. Marks the runs that wait for a deleted run, and decide_followers then
-- decides by their rules.
CREATE OR REPLACE FUNCTION jobctl.forget_history()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $$
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        -- Not TRUNCATE, which fails here if the same command also truncates job_attempts.
        DELETE FROM jobctl.job_attempts;
        DELETE FROM jobctl.job_dependencies;
        DELETE FROM jobctl.job_predecessors;
    ELSE
        -- An array makes the planner use the index, whatever size of the table it assumes.
        DELETE FROM jobctl.job_attempts AS attempt
        WHERE attempt.run_id = ANY (ARRAY(SELECT deleted.id FROM deleted));
        IF EXISTS (SELECT FROM jobctl.job_dependencies) THEN
            -- Delete only rows that are met or whose predecessor is gone. The end of a predecessor
            -- may update the other rows, and would wait for this transaction if it deleted them.
            -- They stay until their predecessor ends or is deleted.
            DELETE FROM jobctl.job_dependencies AS dependency
            WHERE dependency.run_id = ANY (ARRAY(SELECT deleted.id FROM deleted))
                AND (
                    dependency.state = 'met'
                    OR NOT EXISTS (
                        SELECT FROM jobctl.job_runs AS run
                        WHERE run.id = dependency.after_id
                    )
                );
            -- Rows of followers that were deleted before.
            DELETE FROM jobctl.job_dependencies AS dependency
            WHERE dependency.after_id = ANY (ARRAY(SELECT deleted.id FROM deleted))
                AND NOT EXISTS (
                    SELECT FROM jobctl.job_runs AS run
                    WHERE run.id = dependency.run_id
                );
            PERFORM jobctl.mark_followers(ARRAY(SELECT deleted.id FROM deleted));
        END IF;
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER deleted_runs_have_no_history
    AFTER DELETE ON jobctl.job_runs
    REFERENCING OLD TABLE AS deleted
    FOR EACH STATEMENT EXECUTE FUNCTION jobctl.forget_history();

CREATE OR REPLACE TRIGGER no_runs_have_no_history
    AFTER TRUNCATE ON jobctl.job_runs
    FOR EACH STATEMENT EXECUTE FUNCTION jobctl.forget_history();
