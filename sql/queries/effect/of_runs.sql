-- Counts the completed effects of runs: if such a run is retried, `once` does not execute their
-- commands again.
-- $1  ids of runs
-- Zero rows: these runs have no completed effect.
SELECT
    count(*) AS effects,
    count(DISTINCT effect.run_id) AS runs,
    (array_agg(effect.key ORDER BY effect.run_id, effect.recorded_at, effect.key))[1] AS first_key
FROM jobctl.job_effects AS effect
WHERE effect.run_id = ANY ($1::bigint[])
    AND effect.completed_at IS NOT NULL
HAVING count(*) > 0
