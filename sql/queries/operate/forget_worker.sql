-- Deletes a worker that does not tick and holds no run, and deletes its holds. A worker that never
-- ticked may have holds, too: then deletes only the holds.
-- $1  worker    $2  host_user    $3  reason
-- One row: whether anything was deleted. Zero rows: no such worker, and no hold of it.
WITH known AS MATERIALIZED (
    SELECT worker.worker, worker.last_tick_at
    FROM jobctl.job_workers AS worker
    WHERE worker.worker = $1::text
),
deleted AS (
    DELETE FROM jobctl.job_workers AS worker
    WHERE worker.worker = $1::text
        -- seen_at is now() while one of the worker's ticks has the claim right.
        AND NOT EXISTS (
            SELECT FROM jobctl.seen_workers AS seen
            WHERE seen.worker = worker.worker
                AND seen.seen_at >= now()
        )
        AND NOT EXISTS (
            SELECT FROM jobctl.leases AS lease
            WHERE lease.worker = worker.worker
                AND lease.locked_until > now()
        )
    RETURNING worker.worker
),
released AS (
    DELETE FROM jobctl.job_holds AS hold
    WHERE hold.scope = 'worker'
        AND hold.name = $1::text
        AND (EXISTS (SELECT FROM deleted) OR NOT EXISTS (SELECT FROM known))
    RETURNING hold.name
),
-- One row if anything was deleted.
forgotten AS (
    SELECT deleted.worker FROM deleted
    UNION
    SELECT released.name FROM released
),
trail AS (
    INSERT INTO jobctl.job_events (action, host_user, reason, detail)
    SELECT 'forget', $2::text, $3::text, 'worker ' || forgotten.worker
    FROM forgotten
)
SELECT
    forgotten.worker IS NOT NULL AS forgotten,
    known.last_tick_at,
    now() AS now
FROM known
FULL JOIN forgotten ON forgotten.worker = known.worker
