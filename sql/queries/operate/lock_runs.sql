-- Locks runs until the end of the transaction, so that an operation can change or delete them. Does
-- not wait for runs that other sessions have locked: returns their ids.
-- $1  ids
-- Zero rows: this transaction has locked all runs that exist.
--
-- FOR UPDATE is the strongest lock: remove.sql needs it to delete runs. tick/lock_runs.sql takes a
-- weaker lock, during which foreign keys to a run can be checked.
WITH lockable AS MATERIALIZED (
    SELECT run.id
    FROM jobctl.job_runs AS run
    WHERE run.id = ANY ($1::bigint[])
    ORDER BY run.id
    FOR UPDATE SKIP LOCKED
)
SELECT run.id
FROM jobctl.job_runs AS run
WHERE run.id = ANY ($1::bigint[])
    AND run.id NOT IN (SELECT lockable.id FROM lockable)
