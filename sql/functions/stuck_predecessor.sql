-- The first run that keeps a blocked run from starting: it is dead, cancelled or deleted, and the
-- blocked run waits for it, or for other blocked runs that do. Returns a row of NULL if there is
-- none.
CREATE OR REPLACE FUNCTION jobctl.stuck_predecessor(run bigint, OUT id bigint, OUT status text)
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE blocked (id) AS (
        SELECT run
        -- Else nothing is searched.
        WHERE EXISTS (SELECT FROM jobctl.job_dependencies AS waits WHERE waits.state = 'stuck')
        UNION
        SELECT before.id
        FROM blocked
        JOIN jobctl.job_dependencies AS waits
            ON waits.run_id = blocked.id
            AND waits.state IN ('open', 'due')
        JOIN jobctl.job_runs AS before
            ON before.id = waits.after_id
            AND before.status = 'blocked'
    )
    SELECT waits.after_id, coalesce(before.status, 'deleted')
    FROM blocked
    JOIN jobctl.job_dependencies AS waits
        ON waits.run_id = blocked.id
        AND waits.state = 'stuck'
    LEFT JOIN jobctl.job_runs AS before ON before.id = waits.after_id
    WHERE coalesce(before.status, 'deleted') IN ('dead', 'cancelled', 'deleted')
    ORDER BY waits.after_id
    LIMIT 1
$$;
