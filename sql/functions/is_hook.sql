-- Returns whether a definition, even a disabled one, names this job as a hook: in on_dead,
-- on_success or on_end. Internal: only jobctl calls it.
CREATE OR REPLACE FUNCTION jobctl.is_hook(job text)
RETURNS boolean
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (
        SELECT FROM jobctl.job_definitions AS other
        WHERE other.has_hooks
            AND is_hook.job IN (other.on_dead, other.on_success, other.on_end)
    )
$$;
