-- About how many runs there are; negative if it is unknown.
SELECT relation.reltuples::bigint AS runs
FROM pg_class AS relation
WHERE relation.oid = 'jobctl.job_runs'::regclass
