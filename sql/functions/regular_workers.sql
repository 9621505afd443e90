-- Returns the workers for which `fire` queues a run each. They have ticked at least twice, the last
-- time within an hour, and no person holds them without an end. Internal: only jobctl calls it.
--
--   names    patterns for the workers, in which * stands for any characters; NULL: all workers
CREATE OR REPLACE FUNCTION jobctl.regular_workers(names text[])
RETURNS text[]
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(array_agg(worker.worker ORDER BY worker.worker), '{}')
    FROM jobctl.job_workers AS worker
    JOIN jobctl.seen_workers AS seen ON seen.worker = worker.worker
    WHERE seen.seen_at > now() - interval '1 hour'
        AND worker.previous_tick_at IS NOT NULL
        AND NOT EXISTS (
            SELECT FROM jobctl.current_holds AS hold
            WHERE hold.scope = 'worker'
                AND hold.name = worker.worker
                AND hold.held_until IS NULL
        )
        AND (
            regular_workers.names IS NULL
            OR EXISTS (
                SELECT FROM unnest(regular_workers.names) AS pattern
                -- Escapes the special characters of LIKE, and then replaces * by %.
                WHERE worker.worker LIKE
                    translate(regexp_replace(pattern, '[\\%_]', '\\\&', 'g'), '*', '%')
            )
        )
$$;
