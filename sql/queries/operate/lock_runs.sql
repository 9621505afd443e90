-- Locks runs until the end of the transaction, so that an operation can change or delete them.
-- Returns the runs that other sessions have locked.
-- $1  ids
-- Zero rows: this transaction has locked all of them.
--
-- FOR UPDATE is the strongest lock, because remove.sql deletes runs. tick/lock_runs.sql takes a
-- weaker one, during which foreign keys to a run can be checked.
WITH free AS MATERIALIZED (
    SELECT run.id
    FROM jobctl.job_runs AS run
    WHERE run.id = ANY ($1::bigint[])
    ORDER BY run.id
    FOR UPDATE SKIP LOCKED
)
SELECT run.id
FROM jobctl.job_runs AS run
WHERE run.id = ANY ($1::bigint[])
    AND run.id NOT IN (SELECT free.id FROM free)
