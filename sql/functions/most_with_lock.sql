-- Returns how many runs with this lock may run at once: the smallest lock_most of the enabled
-- definitions with the lock, or 1 if no enabled definition has it. Internal: only jobctl calls it.
CREATE OR REPLACE FUNCTION jobctl.most_with_lock(lock text)
RETURNS integer
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(min(definition.lock_most), 1)
    FROM jobctl.job_definitions AS definition
    WHERE definition.lock_name = most_with_lock.lock
        AND definition.enabled
$$;
