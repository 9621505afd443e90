-- Locks runs until the end of the transaction, so that the tick can write them. Does not wait for
-- runs that other sessions have locked: returns their ids.
-- $1  ids
-- Zero rows: this transaction has locked all runs that exist.
WITH lockable AS MATERIALIZED (
    SELECT run.id
    FROM jobctl.job_runs AS run
    WHERE run.id = ANY ($1::bigint[])
    FOR NO KEY UPDATE SKIP LOCKED
)
SELECT run.id
FROM jobctl.job_runs AS run
WHERE run.id = ANY ($1::bigint[])
    AND run.id NOT IN (SELECT lockable.id FROM lockable)
