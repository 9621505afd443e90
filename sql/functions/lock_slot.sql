-- Returns the number of the row of job_lock_slots that a claim locks for this lock. There are 256
-- rows, so locks can share a row: then only one of two claims at the same moment takes runs with
-- these locks. Internal: only jobctl calls it.
CREATE OR REPLACE FUNCTION jobctl.lock_slot(lock text)
RETURNS integer
LANGUAGE sql
IMMUTABLE
AS $$
    SELECT pg_catalog.hashtext(lock) & 255
$$;
