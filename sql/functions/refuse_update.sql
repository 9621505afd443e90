-- Raises the error of the triggers below, which protect three columns of runs from roles that may
-- update them.
--
-- Workers may update `attempts` and `uncounted_attempts`. Without these triggers, a worker could
-- start a run more often than max_attempts allows. Only a release may decrease `attempts`, and only
-- the end of an attempt may increase `uncounted_attempts`.
--
-- AFTER with a WHEN condition: a BEFORE trigger would lock each row of a claim a second time.
CREATE OR REPLACE FUNCTION jobctl.refuse_update()
RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION '% of run % can only %', TG_ARGV[0], OLD.id, TG_ARGV[1]
        USING ERRCODE = 'check_violation', CONSTRAINT = TG_NAME;
END
$$;

-- A release decreases `attempts` by one, and queues or cancels the running run.
CREATE OR REPLACE TRIGGER attempts_only_go_up
    AFTER UPDATE OF attempts ON jobctl.job_runs
    FOR EACH ROW
    WHEN (
        NEW.attempts < OLD.attempts
        AND (
            NEW.attempts < OLD.attempts - 1
            OR OLD.status <> 'running'
            OR NEW.status NOT IN ('queued', 'cancelled')
        )
    )
    EXECUTE FUNCTION jobctl.refuse_update('attempts', 'go down when its claim is released');

-- The end of an uncounted attempt increases `uncounted_attempts` by one, and queues or cancels the
-- running run.
CREATE OR REPLACE TRIGGER uncounted_attempts_follow_attempts
    AFTER UPDATE OF uncounted_attempts ON jobctl.job_runs
    FOR EACH ROW
    WHEN (
        NEW.uncounted_attempts <> OLD.uncounted_attempts
        AND (
            NEW.uncounted_attempts <> OLD.uncounted_attempts + 1
            OR OLD.status <> 'running'
            OR NEW.status NOT IN ('queued', 'cancelled')
        )
    )
    EXECUTE FUNCTION jobctl.refuse_update('uncounted_attempts', 'go up when an attempt ends');

-- Operators may update `key_scope`, because a retry returns the live key to a replaced run. The
-- trigger allows only this change, and the loss of a live key by a running run. Otherwise, an
-- operator could make any key live, replace the run's payload, and undo that.
CREATE OR REPLACE TRIGGER key_scope_only_follows_a_replacement
    AFTER UPDATE OF key_scope ON jobctl.job_runs
    FOR EACH ROW
    WHEN (
        NEW.key_scope <> OLD.key_scope
        AND NEW.idempotency_key = OLD.idempotency_key
        AND (OLD.key_scope, NEW.key_scope) <> ('replaced', 'live')
        AND (OLD.key_scope, NEW.key_scope, OLD.status) <> ('live', 'replaced', 'running')
    )
    EXECUTE FUNCTION jobctl.refuse_update('key_scope', 'change between live and replaced');
