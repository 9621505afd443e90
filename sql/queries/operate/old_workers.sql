-- Lists workers that hold no run and whose last tick was long ago: at least a day, and at least 30
-- times `missed_for`, the time for which `check` reports a silent worker. prune_workers.sql checks
-- them again.
SELECT worker.worker
FROM jobctl.job_workers AS worker
WHERE worker.last_tick_at < now() - greatest(30 * worker.missed_for, interval '1 day')
    AND NOT EXISTS (
        SELECT FROM jobctl.job_runs AS run
        WHERE run.status = 'running'
            AND run.locked_by = worker.worker
    )
