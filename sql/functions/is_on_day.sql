-- Returns whether a day is one of a part of a schedule's days: `mon`, `mon-fri`, `mon#1`, `monl`,
-- `l` or `lw`, in lower case. No settings, as for wrong_value. Internal: no part of the contract of
-- the schema.
CREATE OR REPLACE FUNCTION jobctl.is_on_day(day timestamp, part text)
RETURNS boolean
LANGUAGE sql
IMMUTABLE
AS $$
    SELECT CASE
        WHEN part = 'l' THEN number.rest = 0
        WHEN part = 'lw'
            THEN number.day < 6 AND number.rest = 0 OR number.day = 5 AND number.rest <= 2
        WHEN part ~ '#'
            THEN number.day = number.first
                AND ceil(number.of_month / 7) = right(part, 1)::integer
        WHEN part ~ 'l$' THEN number.day = number.first AND number.rest < 7
        WHEN number.first <= number.last
            THEN number.day BETWEEN number.first AND number.last
        ELSE number.day >= number.first OR number.day <= number.last
    END
    FROM (
        SELECT
            array_position('{mon,tue,wed,thu,fri,sat,sun}'::text[], left(part, 3)) AS first,
            array_position('{mon,tue,wed,thu,fri,sat,sun}'::text[], right(part, 3)) AS last,
            extract(isodow FROM is_on_day.day)::integer AS day,
            extract(day FROM is_on_day.day) AS of_month,
            extract(
                day FROM date_trunc('month', is_on_day.day) + interval '1 month' - interval '1 day'
            ) - extract(day FROM is_on_day.day) AS rest
    ) AS number
$$;
