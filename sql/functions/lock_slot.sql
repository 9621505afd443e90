-- Returns the row of job_lock_slots for a lock. Several locks may have the same: then two claims at
-- the same moment don't both take runs of them. Internal: no part of the contract of the schema.
CREATE OR REPLACE FUNCTION jobctl.lock_slot(lock text)
RETURNS integer
LANGUAGE sql
IMMUTABLE
AS $$
    SELECT pg_catalog.hashtext(lock) & 255
$$;
