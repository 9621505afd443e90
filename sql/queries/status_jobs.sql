-- How each job does: every definition, and every job that has unfinished, dead or lately succeeded runs.
-- `waiting` and `due` divide the queued and failed runs; run times are those of the last 24 hours.
-- $1  a job; NULL for all
WITH standing AS (
    SELECT run.job_type, run.status, run.run_at
    FROM jobctl.job_runs AS run
    WHERE run.status IN ('queued', 'failed')
        AND ($1::text IS NULL OR run.job_type = $1::text)
    UNION ALL
    SELECT run.job_type, run.status, NULL
    FROM jobctl.job_runs AS run
    WHERE run.status = 'running'
        AND ($1::text IS NULL OR run.job_type = $1::text)
    UNION ALL
    SELECT run.job_type, run.status, NULL
    FROM jobctl.job_runs AS run
    WHERE run.status = 'dead'
        AND ($1::text IS NULL OR run.job_type = $1::text)
),
counted AS (
    SELECT
        standing.job_type,
        count(*) FILTER (WHERE standing.run_at > now()) AS waiting,
        count(*) FILTER (WHERE standing.run_at <= now()) AS due,
        count(*) FILTER (WHERE standing.status = 'running') AS running,
        count(*) FILTER (WHERE standing.status = 'failed') AS failed,
        count(*) FILTER (WHERE standing.status = 'dead') AS dead,
        min(standing.run_at) FILTER (WHERE standing.run_at <= now()) AS oldest_due
    FROM standing
    GROUP BY standing.job_type
),
succeeded AS (
    SELECT
        run.job_type,
        count(*) AS runs,
        percentile_disc(ARRAY[0.5, 0.95, 1]) WITHIN GROUP (
            ORDER BY date_part('epoch', run.finished_at - run.started_at)
        ) AS took
    FROM jobctl.job_runs AS run
    WHERE run.finished_at > now() - interval '24 hours'
        AND run.status = 'succeeded'
        AND ($1::text IS NULL OR run.job_type = $1::text)
    GROUP BY run.job_type
),
definition AS (
    SELECT
        definition.name AS job_type,
        CASE
            WHEN NOT definition.enabled THEN 'disabled'
            WHEN definition.schedule IS NULL THEN NULL
            WHEN definition.paused_at IS NOT NULL THEN 'paused'
            ELSE 'fires'
        END AS state,
        definition.next_run_at
    FROM jobctl.job_definitions AS definition
    WHERE $1::text IS NULL
        OR definition.name = $1::text
)
SELECT
    job_type,
    coalesce(counted.waiting, 0) AS waiting,
    coalesce(counted.due, 0) AS due,
    coalesce(counted.running, 0) AS running,
    coalesce(counted.failed, 0) AS failed,
    coalesce(counted.dead, 0) AS dead,
    extract(epoch FROM now() - counted.oldest_due)::float8 AS oldest_due_age,
    coalesce(succeeded.runs, 0) AS succeeded,
    succeeded.took,
    definition.state,
    CASE WHEN definition.state = 'fires' THEN definition.next_run_at END AS next_fire_at
FROM definition
FULL JOIN counted USING (job_type)
FULL JOIN succeeded USING (job_type)
ORDER BY job_type
