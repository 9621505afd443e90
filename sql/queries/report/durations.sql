-- How long the newest successful runs of each job took, and the newest of a week before.
-- $1  jobs
-- A row per job, in their order: medians in seconds; NULL without such a run. Only the twenty
-- newest runs count, so the time does not grow with the history.
WITH week AS (
    -- Ids grow with time, so this id separates the runs of the last week from older ones.
    SELECT coalesce(
        (
            SELECT run.id
            FROM jobctl.job_runs AS run
            WHERE run.finished_at < now() - interval '7 days'
            ORDER BY run.finished_at DESC
            LIMIT 1
        ),
        0
    ) AS id
)
SELECT newest.seconds AS median, older.seconds AS median_before
FROM unnest($1::text[]) WITH ORDINALITY AS job (name, place)
CROSS JOIN week
CROSS JOIN LATERAL (
    SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY run.seconds) AS seconds
    FROM (
        SELECT run.status, date_part('epoch', run.finished_at - run.started_at) AS seconds
        FROM jobctl.job_runs AS run
        WHERE run.job_type = job.name
            AND run.status <> 'running'
            AND run.id > week.id
        ORDER BY run.id DESC
        LIMIT 20
    ) AS run
    WHERE run.status = 'succeeded'
) AS newest
CROSS JOIN LATERAL (
    SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY run.seconds) AS seconds
    FROM (
        SELECT run.status, date_part('epoch', run.finished_at - run.started_at) AS seconds
        FROM jobctl.job_runs AS run
        WHERE run.job_type = job.name
            AND run.status <> 'running'
            AND run.id <= week.id
        ORDER BY run.id DESC
        LIMIT 20
    ) AS run
    WHERE run.status = 'succeeded'
) AS older
ORDER BY job.place
