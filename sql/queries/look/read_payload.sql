-- Reads a run's payload. show.sql does not read it, because it must work for an unreadable payload.
-- $1  id
-- Zero rows: no such run.
SELECT run.payload::text AS payload
FROM jobctl.job_runs AS run
WHERE run.id = $1::bigint
