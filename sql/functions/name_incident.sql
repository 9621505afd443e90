-- Writes the cause and the incident of an attempt that failed. An incident is a group of attempts
-- that failed alike, over all jobs, shares and workers.
--
-- An attempt joins the incident of the newest attempt with the same cause and error type that ended
-- at most 30 minutes before or after it. Otherwise, it begins an incident, whose name is its run
-- and attempt, as 17.2. If two attempts are the first to fail alike in two open transactions, each
-- begins an incident.
CREATE OR REPLACE FUNCTION jobctl.name_incident()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
BEGIN
    IF NEW.outcome NOT IN ('failed', 'lease_expired') THEN
        NEW.cause := NULL;
        NEW.incident := NULL;
        RETURN NEW;
    END IF;
    NEW.cause := jobctl.failure_cause(NEW.error_type, NEW.error, NEW.output);
    SELECT other.incident
    INTO NEW.incident
    FROM jobctl.job_attempts AS other
    WHERE other.incident IS NOT NULL
        AND other.cause = NEW.cause
        AND other.error_type IS NOT DISTINCT FROM NEW.error_type
        AND other.finished_at
            BETWEEN NEW.finished_at - interval '30 minutes'
            AND NEW.finished_at + interval '30 minutes'
        -- During an UPDATE, the table still has the old row of this attempt.
        AND (other.run_id, other.attempt) <> (NEW.run_id, NEW.attempt)
    ORDER BY other.finished_at DESC
    LIMIT 1;
    NEW.incident := coalesce(NEW.incident, NEW.run_id || '.' || NEW.attempt);
    RETURN NEW;
END
$$;

-- Also for an attempt that did not fail but was given an incident, which the function removes.
CREATE OR REPLACE TRIGGER failures_name_their_incident
    BEFORE INSERT ON jobctl.job_attempts
    FOR EACH ROW
    WHEN (NEW.outcome IN ('failed', 'lease_expired') OR NEW.incident IS NOT NULL)
    EXECUTE FUNCTION jobctl.name_incident();

CREATE OR REPLACE TRIGGER changed_failures_name_their_incident
    BEFORE UPDATE OF outcome, error_type, error, output, incident ON jobctl.job_attempts
    FOR EACH ROW
    EXECUTE FUNCTION jobctl.name_incident();
