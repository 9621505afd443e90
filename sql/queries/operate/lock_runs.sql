-- Returns the runs that another session has locked; locks the others until the end of the
-- transaction.
-- $1  ids
-- Zero rows: all are locked by this transaction. The lock is the strongest, because remove.sql
-- deletes runs.
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
