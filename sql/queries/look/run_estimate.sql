-- Returns PostgreSQL's estimate of the number of runs. A negative number: unknown.
SELECT relation.reltuples::bigint AS runs
FROM pg_class AS relation
WHERE relation.oid = 'jobctl.job_runs'::regclass
