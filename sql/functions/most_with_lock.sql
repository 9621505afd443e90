-- Returns how many runs with a lock may run at once: one, unless enabled definitions with it say
-- more; then the least of their numbers. Internal: no part of the contract of the schema.
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
