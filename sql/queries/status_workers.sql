-- Who ticks, the latest tick first.
SELECT
    worker.name,
    worker.last_tick_at,
    worker.version
FROM jobctl.job_workers AS worker
ORDER BY worker.last_tick_at DESC, worker.name
