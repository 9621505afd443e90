-- blocked -> queued or cancelled: runs that wait for these ended runs. Skips locked runs.
-- $1  ids, of ended or deleted runs, and of others whose followers are new
-- The lock keeps the status of a run while its followers are decided. The new row version makes a
-- transaction fail that would end the run later, but has an older snapshot, without the followers.
-- One row: whether any run has another status now.
WITH free AS (
    UPDATE jobctl.job_runs AS run
    SET updated_at = run.updated_at
    WHERE run.id = ANY (ARRAY(
        SELECT locked.id
        FROM jobctl.job_runs AS locked
        WHERE locked.id = ANY ($1::bigint[])
        ORDER BY locked.id
        FOR NO KEY UPDATE SKIP LOCKED
    ))
    RETURNING run.id
),
ready AS MATERIALIZED (
    SELECT free.id
    FROM free
    UNION ALL
    SELECT deleted.id
    FROM unnest($1::bigint[]) AS deleted (id)
    WHERE NOT EXISTS (SELECT FROM jobctl.job_runs AS run WHERE run.id = deleted.id)
)
SELECT coalesce(jobctl.follow_up((SELECT array_agg(ready.id) FROM ready)), false) AS changes_runs
