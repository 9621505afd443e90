-- Records that the database took long for an answer. Slow answers less than 10 minutes apart are
-- one series. The worker's row has its start (`slow_since`), its last answer (`slow_at`) and its
-- longest time (`slow_seconds`).
-- $1  worker    $2  took, seconds
UPDATE jobctl.job_workers AS worker
SET
    (slow_since, slow_seconds) = (
        SELECT
            CASE WHEN answer.is_in_series THEN worker.slow_since ELSE now() END,
            CASE
                WHEN answer.is_in_series THEN greatest(worker.slow_seconds, $2::float8)
                ELSE $2
            END
        FROM (
            -- A later slow_at was written while the database's clock was ahead.
            SELECT
                worker.slow_at BETWEEN now() - interval '10 minutes'
                    AND now() + interval '1 minute' AS is_in_series
        ) AS answer
    ),
    slow_at = now()
WHERE worker.worker = $1::text
