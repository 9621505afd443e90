-- Cancels expired runs: queued or failed -> cancelled. Skips runs that other sessions have locked.
-- $1  ids
-- A row per cancelled run. A missing run is locked, or another tick has claimed or ended it.
SELECT unnest(ended.ids) AS id
FROM jobctl.end_runs(
    way => 'expired',
    runs => ARRAY(
        SELECT run.id
        FROM jobctl.job_runs AS run
        WHERE run.id = ANY ($1::bigint[])
            AND run.status IN ('queued', 'failed')
        FOR NO KEY UPDATE SKIP LOCKED
    )
) AS ended
