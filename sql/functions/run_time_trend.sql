-- Returns the trend of a job's average run time a day, in seconds. `average`: of the newest day
-- with a success, within two months. `average_before`: of the last such day 7 to 13 days earlier;
-- NULL if the two differ by less than a fifth or less than a second. `days`: between the two.
-- `days_to_timeout`: until the average reaches the timeout at this pace; NULL if it does not grow.
-- Internal: no part of the contract of the schema.
CREATE OR REPLACE FUNCTION jobctl.run_time_trend(
    job text,
    "timeout" interval,
    OUT average float8,
    OUT average_before float8,
    OUT days integer,
    OUT days_to_timeout float8
)
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT
        newest.seconds,
        older.seconds,
        newest.day - older.day,
        CASE
            WHEN newest.seconds > older.seconds AND extract(epoch FROM "timeout") > newest.seconds
                THEN (extract(epoch FROM "timeout") - newest.seconds)
                    / ((newest.seconds - older.seconds) / (newest.day - older.day))
        END
    FROM (
        SELECT figures.day, figures.run_time_seconds / figures.succeeded AS seconds
        FROM jobctl.daily_figures AS figures
        WHERE figures.job_type = run_time_trend.job
            AND figures.succeeded > 0
            -- Of a job that ran longer ago, no trend is worth reading the figures of a year.
            AND figures.day > (now() AT TIME ZONE 'UTC')::date - 62
        ORDER BY figures.day DESC
        LIMIT 1
    ) AS newest
    LEFT JOIN LATERAL (
        SELECT figures.day, figures.run_time_seconds / figures.succeeded AS seconds
        FROM jobctl.daily_figures AS figures
        WHERE figures.job_type = run_time_trend.job
            AND figures.succeeded > 0
            -- A job may not run each day.
            AND figures.day BETWEEN newest.day - 13 AND newest.day - 7
        ORDER BY figures.day DESC
        LIMIT 1
    ) AS older
        ON abs(newest.seconds - older.seconds) >= greatest(1, older.seconds / 5)
        AND older.seconds > 0
$$;
