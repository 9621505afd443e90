-- Records that the database took long for an answer.
-- $1  worker    $2  took, seconds
UPDATE jobctl.job_workers AS worker
SET
    slow_since = CASE
        WHEN worker.slow_at BETWEEN now() - interval '10 minutes' AND now() + interval '1 minute'
            THEN worker.slow_since
        ELSE now()
    END,
    slow_at = now(),
    slow_seconds = $2::float8
WHERE worker.worker = $1::text
