-- Reads the operating system user of a worker's last tick; NULL if it is not known.
-- $1  worker
-- At most one row.
SELECT worker.os_user
FROM jobctl.job_workers AS worker
WHERE worker.worker = $1::text
