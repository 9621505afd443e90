-- Deletes workers that have not ticked for so long that they are gone for good, and hold nothing.
-- $1  seconds
DELETE FROM jobctl.job_workers AS worker
WHERE worker.last_tick_at < now() - make_interval(secs => $1::float8)
    AND NOT EXISTS (
        SELECT FROM jobctl.job_runs AS run
        WHERE run.status = 'running'
            AND run.locked_by = worker.name
    )
