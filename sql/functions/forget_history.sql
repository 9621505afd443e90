-- Deletes the history of deleted runs, and what they wait for. Runs that wait for a deleted one go
-- on as their rules say.
CREATE OR REPLACE FUNCTION jobctl.forget_history()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $$
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        -- TRUNCATE fails here if the same command already truncates job_attempts.
        DELETE FROM jobctl.job_attempts;
        DELETE FROM jobctl.job_dependencies;
        DELETE FROM jobctl.job_predecessors;
    ELSE
        -- An array forces the index, whatever size of the table the planner assumes.
        DELETE FROM jobctl.job_attempts AS attempt
        WHERE attempt.run_id = ANY (ARRAY(SELECT deleted.id FROM deleted));
        IF EXISTS (SELECT FROM jobctl.job_dependencies) THEN
            -- The end of a predecessor may write to the others, and must not wait for this
            -- transaction. They go with the predecessor.
            DELETE FROM jobctl.job_dependencies AS dependency
            WHERE dependency.run_id = ANY (ARRAY(SELECT deleted.id FROM deleted))
                AND (
                    dependency.state = 'met'
                    OR NOT EXISTS (
                        SELECT FROM jobctl.job_runs AS run
                        WHERE run.id = dependency.after_id
                    )
                );
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
