-- Deletes runs of the load test, whatever their status. A trigger deletes their history. The caller
-- holds the lock of the test, see renew.sql. A worker that still has a claim loses it.
-- $1  most: the maximum for each of the two parts, which have an index each: runs that are not
--     running, and running runs
-- Returns the number of deleted rows. If it is less than `most`, no more runs are left.
DELETE FROM jobctl.job_runs AS run
WHERE run.id = ANY (ARRAY(
    (
        SELECT ended.id
        FROM jobctl.job_runs AS ended
        WHERE ended.job_type = 'jobctl-load'
            AND ended.status <> 'running'
        LIMIT $1::bigint
    )
    UNION ALL
    (
        SELECT held.id
        FROM jobctl.job_runs AS held
        WHERE held.job_type = 'jobctl-load'
            AND held.status = 'running'
        LIMIT $1::bigint
    )
))
