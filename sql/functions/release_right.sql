-- Releases the claim right of a worker if this tick has it. Internal: only jobctl calls it.
CREATE OR REPLACE FUNCTION jobctl.release_right(worker text, tick text)
RETURNS void
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
UPDATE jobctl.job_workers AS holder
SET
    claiming_tick = NULL,
    claiming_until = NULL
WHERE holder.worker = release_right.worker
    AND holder.claiming_tick = release_right.tick
$$;
