-- Locks runs until the end of the transaction, so that the tick can write them. Returns the runs
-- that other sessions have locked.
-- $1  ids
-- Zero rows: this transaction has locked all of them. A deleted run is not returned either.
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
