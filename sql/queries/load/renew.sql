-- Renews the lock of a load test, see begin.sql, and counts its runs that have not ended.
-- $1  id of the test's definition
-- One row: the count. Pending and running runs are counted separately, because they have an index
-- each. Zero rows: another test took over the definition, or it was removed.
UPDATE jobctl.job_definitions AS definition
SET updated_at = now()
WHERE definition.id = $1::bigint
RETURNING (
    SELECT count(*)
    FROM jobctl.job_runs AS run
    WHERE run.queue = 'jobctl-load'
        AND run.job_type = 'jobctl-load'
        AND run.status IN ('queued', 'failed')
) + (
    SELECT count(*)
    FROM jobctl.job_runs AS run
    WHERE run.job_type = 'jobctl-load'
        AND run.status = 'running'
) AS unfinished
