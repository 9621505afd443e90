-- The state of runs, schedules and ticks, as numbers and as seconds before now. One row.
SELECT
    (
        SELECT count(*)
        FROM jobctl.job_runs AS run
        WHERE run.status = 'dead'
    ) AS dead,
    lost.runs AS lost,
    lost.seconds AS lost_for,
    late.names AS late_schedules,
    late.seconds AS late_for,
    ticked.worker,
    ticked.seconds AS ticked_ago
FROM (
    SELECT
        count(*) AS runs,
        extract(epoch FROM now() - min(run.locked_until))::float8 AS seconds
    FROM jobctl.job_runs AS run
    WHERE run.status = 'running'
        AND run.locked_until < now()
) AS lost
CROSS JOIN (
    SELECT
        coalesce(array_agg(definition.name ORDER BY definition.next_run_at), '{}') AS names,
        extract(epoch FROM now() - min(definition.next_run_at))::float8 AS seconds
    FROM jobctl.job_definitions AS definition
    WHERE definition.enabled
        AND definition.paused_at IS NULL
        AND definition.next_run_at <= now()
) AS late
LEFT JOIN (
    SELECT
        worker.worker,
        extract(epoch FROM now() - worker.last_tick_at)::float8 AS seconds
    FROM jobctl.job_workers AS worker
    ORDER BY worker.last_tick_at DESC
    LIMIT 1
) AS ticked ON true
