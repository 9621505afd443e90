-- The first dead, cancelled or deleted run for which a blocked run waits, directly or through other
-- blocked runs. Returns a row of NULL if there is none. Looks at 10,000 blocked runs at most, which
-- takes some hundredths of a second.
CREATE OR REPLACE FUNCTION jobctl.stuck_predecessor(run bigint, OUT id bigint, OUT status text)
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $$
    WITH RECURSIVE blocked (id) AS (
        SELECT run
        -- Else nothing is searched.
        WHERE EXISTS (
            SELECT FROM jobctl.job_dependencies AS waits
            WHERE waits.state IN ('stuck', 'due')
        )
        UNION
        SELECT before.id
        FROM blocked
        -- OFFSET 0: one run at a time, by the indexes.
        CROSS JOIN LATERAL (
            SELECT awaited.id
            FROM jobctl.job_dependencies AS waits
            JOIN jobctl.job_runs AS awaited
                ON awaited.id = waits.after_id
                AND awaited.status = 'blocked'
            WHERE waits.run_id = blocked.id
                AND waits.state IN ('open', 'due')
            OFFSET 0
        ) AS before
    )
    SELECT ended.id, ended.status
    FROM (
        SELECT blocked.id
        FROM blocked
        LIMIT 10000
    ) AS searched
    CROSS JOIN LATERAL (
        SELECT awaited.id, awaited.status
        FROM jobctl.awaited_runs AS awaited
        WHERE awaited.follower_id = searched.id
            AND awaited.is_stuck
        OFFSET 0
    ) AS ended
    ORDER BY ended.id
    LIMIT 1
$$;
