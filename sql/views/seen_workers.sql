-- When each worker was last seen: now if one of its ticks may claim, else at its last tick. A tick
-- with --linger polls many times a second, but rarely updates its row. A time that no tick can have
-- written is ignored, because the database's clock was ahead: a claim right lasts for less than ten
-- minutes. `seen_at` is NULL if only such times are known.
CREATE OR REPLACE VIEW jobctl.seen_workers AS
SELECT
    worker.worker,
    CASE
        WHEN worker.claiming_until BETWEEN now() AND now() + interval '10 minutes' THEN now()
        WHEN worker.last_tick_at <= now() + interval '1 minute' THEN worker.last_tick_at
    END AS seen_at,
    hold.name IS NOT NULL AS is_held
FROM jobctl.job_workers AS worker
LEFT JOIN jobctl.current_holds AS hold
    ON hold.scope = 'worker'
    AND hold.name = worker.worker;
