-- Returns a row for each of these blocked runs that waits for a dead, cancelled or deleted run,
-- directly or through other blocked runs: `run_id` is the blocked run, `id` and `status` are those
-- of the run that it waits for. If there are several, returns the one with the smallest id.
--
-- Reads at most 10,000 rows of job_dependencies, those of the nearest runs first, which takes some
-- hundredths of a second.
CREATE OR REPLACE FUNCTION jobctl.stuck_predecessor(runs bigint[])
RETURNS TABLE (run_id bigint, id bigint, status text)
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $$
    -- `run_id` is one of `runs`, and `id` a run for which it waits, directly or through others. The
    -- chain begins with the run itself.
    WITH RECURSIVE chain (run_id, id, status, is_stuck) AS (
        SELECT asked.id, asked.id, 'blocked', false
        FROM unnest(runs) AS asked (id)
        -- Without a row in one of these states, no run is stuck, and the search is left out.
        WHERE EXISTS (
            SELECT FROM jobctl.job_dependencies AS dependency
            WHERE dependency.state IN ('stuck', 'due')
        )
        UNION
        SELECT chain.run_id, predecessor.id, predecessor.status, predecessor.is_stuck
        FROM chain
        -- OFFSET 0 makes the planner read one run at a time, by the indexes.
        CROSS JOIN LATERAL (
            SELECT awaited.id, awaited.status, awaited.is_stuck
            FROM jobctl.awaited_runs AS awaited
            WHERE awaited.follower_id = chain.id
                AND awaited.state <> 'met'
            OFFSET 0
        ) AS predecessor
        WHERE chain.status = 'blocked'
    )
    SELECT DISTINCT ON (known.run_id) known.run_id, known.id, known.status
    FROM (
        SELECT chain.*
        FROM chain
        -- The runs themselves do not count.
        LIMIT 10000 + cardinality(runs)
    ) AS known
    WHERE known.is_stuck
    ORDER BY known.run_id, known.id
$$;
