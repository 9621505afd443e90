-- Deletes these workers, if the conditions of old_workers.sql still hold for them.
-- $1  names
DELETE FROM jobctl.job_workers AS worker
WHERE worker.worker = ANY ($1::text[])
    AND worker.last_tick_at < now() - greatest(30 * worker.missed_for, interval '1 day')
    AND NOT EXISTS (
        SELECT FROM jobctl.job_runs AS run
        WHERE run.status = 'running'
            AND run.locked_by = worker.worker
    )
