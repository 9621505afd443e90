-- Returns the runs that another session has locked; locks the others until the end of the
-- transaction.
-- $1  ids
-- Zero rows: all are locked by this transaction.
WITH free AS MATERIALIZED (
    SELECT run.id
    FROM jobctl.job_runs AS run
    WHERE run.id = ANY ($1::bigint[])
    FOR NO KEY UPDATE SKIP LOCKED
)
SELECT run.id
FROM jobctl.job_runs AS run
WHERE run.id = ANY ($1::bigint[])
    AND run.id NOT IN (SELECT free.id FROM free)
