-- Returns how the average run time of a job on a day has changed in about a week. Times are
-- seconds. Internal: only jobctl calls it.
--
--   average            of the newest day with a success in the last two months
--   average_before     of the last such day 7 to 13 days earlier; NULL if there is none, or if the
--                      two differ by less than a fifth or less than a second
--   days               the days between the two
--   days_to_timeout    the days until the average reaches the timeout, if it grows as before; NULL
--                      if it does not grow, or has reached it
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
            -- Read two months: for a job that last ran before that, a trend is not worth reading a
            -- year of figures.
            AND figures.day > (now() AT TIME ZONE 'UTC')::date - 62
        ORDER BY figures.day DESC
        LIMIT 1
    ) AS newest
    LEFT JOIN LATERAL (
        SELECT figures.day, figures.run_time_seconds / figures.succeeded AS seconds
        FROM jobctl.daily_figures AS figures
        WHERE figures.job_type = run_time_trend.job
            AND figures.succeeded > 0
            -- Not only the day a week earlier, because a job may not run each day.
            AND figures.day BETWEEN newest.day - 13 AND newest.day - 7
        ORDER BY figures.day DESC
        LIMIT 1
    ) AS older
        ON abs(newest.seconds - older.seconds) >= greatest(1, older.seconds / 5)
        AND older.seconds > 0
$$;
