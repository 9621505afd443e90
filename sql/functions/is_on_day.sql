-- Returns whether a day matches one part of a schedule's list of days. The part is in lower case.
-- Has no SET clause, which would make a call slower. Internal: only jobctl calls it.
--   mon        each Monday
--   mon-fri    the days from Monday to Friday; sat-mon crosses the end of the week
--   mon#1      the first Monday of the month
--   monl       the last Monday of the month
--   l          the last day of the month
--   lw         the last day of the month from Monday to Friday
CREATE OR REPLACE FUNCTION jobctl.is_on_day(day timestamp, part text)
RETURNS boolean
LANGUAGE sql
IMMUTABLE
AS $$
    SELECT CASE
        WHEN part = 'l' THEN given.days_left = 0
        -- The last day, or a Friday if only the weekend follows.
        WHEN part = 'lw'
            THEN given.weekday < 6 AND given.days_left = 0
                OR given.weekday = 5 AND given.days_left <= 2
        -- The n-th Monday of a month is one of its n-th seven days.
        WHEN part ~ '#'
            THEN given.weekday = given.first
                AND ceil(given.day_of_month / 7) = right(part, 1)::integer
        WHEN part ~ 'l$' THEN given.weekday = given.first AND given.days_left < 7
        WHEN given.first <= given.last
            THEN given.weekday BETWEEN given.first AND given.last
        ELSE given.weekday >= given.first OR given.weekday <= given.last
    END
    FROM (
        -- Monday is 1, and Sunday is 7. Without a range, `first` and `last` are the same day.
        SELECT
            array_position('{mon,tue,wed,thu,fri,sat,sun}'::text[], left(part, 3)) AS first,
            array_position('{mon,tue,wed,thu,fri,sat,sun}'::text[], right(part, 3)) AS last,
            extract(isodow FROM is_on_day.day)::integer AS weekday,
            extract(day FROM is_on_day.day) AS day_of_month,
            extract(
                day FROM date_trunc('month', is_on_day.day) + interval '1 month' - interval '1 day'
            ) - extract(day FROM is_on_day.day) AS days_left
    ) AS given
$$;
