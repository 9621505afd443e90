-- Names the cause and the incident of each attempt that failed. It is in the incident of the newest
-- attempt that failed alike, at most 30 minutes before or after it, whatever their jobs, shares and
-- workers; else it begins an incident. Two that fail first, at the same moment, may begin two.
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
        AND (other.run_id, other.attempt) <> (NEW.run_id, NEW.attempt)
    ORDER BY other.finished_at DESC
    LIMIT 1;
    NEW.incident := coalesce(NEW.incident, NEW.run_id || '.' || NEW.attempt);
    RETURN NEW;
END
$$;

CREATE OR REPLACE TRIGGER failures_name_their_incident
    BEFORE INSERT ON jobctl.job_attempts
    FOR EACH ROW
    WHEN (NEW.outcome IN ('failed', 'lease_expired') OR NEW.incident IS NOT NULL)
    EXECUTE FUNCTION jobctl.name_incident();

CREATE OR REPLACE TRIGGER changed_failures_name_their_incident
    BEFORE UPDATE OF outcome, error_type, error, output, incident ON jobctl.job_attempts
    FOR EACH ROW
    EXECUTE FUNCTION jobctl.name_incident();
