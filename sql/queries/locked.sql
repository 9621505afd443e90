-- Which of these runs somebody else has locked; the others are locked now, until the end of the transaction.
-- $1  run ids
-- Zero rows: nobody has any of them.
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
