-- Locks runs until the end of the transaction, so that an operation can change or delete them.
-- Returns those that another session has locked.
-- $1  ids
-- Zero rows: this transaction has locked all of them. The lock is the strongest, because remove.sql
-- deletes runs; that of tick/lock_runs.sql lets foreign keys to a run be checked meanwhile.
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
