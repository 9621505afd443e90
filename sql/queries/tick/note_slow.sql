-- Records that the database took long for an answer. Slow answers less than 10 minutes apart are
-- one series, of which the start and the longest time are kept.
-- $1  worker    $2  took, seconds
UPDATE jobctl.job_workers AS worker
SET
    (slow_since, slow_seconds) = (
        SELECT
            CASE WHEN answer.continues THEN worker.slow_since ELSE now() END,
            CASE WHEN answer.continues THEN greatest(worker.slow_seconds, $2::float8) ELSE $2 END
        FROM (
            SELECT
                worker.slow_at BETWEEN now() - interval '10 minutes'
                    AND now() + interval '1 minute' AS continues
        ) AS answer
    ),
    slow_at = now()
WHERE worker.worker = $1::text
