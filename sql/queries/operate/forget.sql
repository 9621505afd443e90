-- Deletes a worker that does not tick and holds no run, and its holds.
-- $1  worker    $2  host_user    $3  reason
-- One row: whether the worker was deleted. Zero rows: no such worker.
WITH known AS MATERIALIZED (
    SELECT worker.worker, worker.last_tick_at
    FROM jobctl.job_workers AS worker
    WHERE worker.worker = $1::text
),
deleted AS (
    DELETE FROM jobctl.job_workers AS worker
    WHERE worker.worker = $1::text
        AND coalesce(worker.claiming_until <= now(), true)
        AND NOT EXISTS (
            SELECT FROM jobctl.leases AS lease
            WHERE lease.worker = worker.worker
                AND lease.locked_until > now()
        )
    RETURNING worker.worker
),
released AS (
    DELETE FROM jobctl.job_holds AS hold
    USING deleted
    WHERE hold.scope = 'worker'
        AND hold.name = deleted.worker
),
trail AS (
    INSERT INTO jobctl.job_events (action, host_user, reason, detail)
    SELECT 'forget', $2::text, $3::text, left('worker ' || deleted.worker, 1000)
    FROM deleted
)
SELECT
    EXISTS (SELECT FROM deleted) AS forgotten,
    known.last_tick_at,
    now() AS now
FROM known
