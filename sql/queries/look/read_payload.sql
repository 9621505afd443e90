-- Reads a run's payload. It is not part of show.sql because the payload may be unreadable.
-- $1  id
-- Zero rows: no such run.
SELECT run.payload::text AS payload
FROM jobctl.job_runs AS run
WHERE run.id = $1::bigint
