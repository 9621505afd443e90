-- When each worker was last seen, and whether a person holds it.
--
-- `seen_at`: now if one of its ticks has the claim right, else the time of its last tick. A tick
-- with --linger polls many times a second, but rarely updates last_tick_at. Two times are ignored,
-- because they were written while the database's clock was ahead: a claim right that lasts for more
-- than ten minutes, and a last tick more than a minute in the future. NULL: no other time is known.
CREATE OR REPLACE VIEW jobctl.seen_workers AS
SELECT
    worker.worker,
    CASE
        WHEN worker.claiming_until BETWEEN now() AND now() + interval '10 minutes' THEN now()
        WHEN worker.last_tick_at <= now() + interval '1 minute' THEN worker.last_tick_at
    END AS seen_at,
    held.name IS NOT NULL AS is_held
FROM jobctl.job_workers AS worker
-- DISTINCT: several people may hold a worker.
LEFT JOIN (
    SELECT DISTINCT hold.name
    FROM jobctl.current_holds AS hold
    WHERE hold.scope = 'worker'
) AS held ON held.name = worker.worker;
