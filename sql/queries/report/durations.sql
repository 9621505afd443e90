-- The average run time of each job on its newest day with a success, and on a day a week before.
-- $1  jobs
-- A row per job, in their order: averages in seconds; NULL without such a day.
SELECT newest.seconds AS average, older.seconds AS average_before
FROM unnest($1::text[]) WITH ORDINALITY AS job (name, place)
LEFT JOIN LATERAL (
    SELECT figures.day, figures.run_time_seconds / figures.succeeded AS seconds
    FROM jobctl.daily_figures AS figures
    WHERE figures.job_type = job.name
        AND figures.succeeded > 0
    ORDER BY figures.day DESC
    LIMIT 1
) AS newest ON true
LEFT JOIN LATERAL (
    SELECT figures.run_time_seconds / figures.succeeded AS seconds
    FROM jobctl.daily_figures AS figures
    WHERE figures.job_type = job.name
        AND figures.succeeded > 0
        -- A job may not run each day.
        AND figures.day BETWEEN newest.day - 13 AND newest.day - 7
    ORDER BY figures.day DESC
    LIMIT 1
) AS older ON true
ORDER BY job.place
