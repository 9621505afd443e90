-- A run's payload, apart from show.sql, because it may be what can't be read.
-- $1  run id
-- Zero rows: no such run.
SELECT run.payload::text AS payload
FROM jobctl.job_runs AS run
WHERE run.id = $1::bigint
