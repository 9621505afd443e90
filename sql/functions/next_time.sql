-- Returns the first time later than `after` at which a clock in the time zone shows the time of day
-- `at` on one of the days. The days are `*`, or a list such as `mon,wed`, `mon-fri`, `mon#1`,
-- `friL`, `L` or `LW`; its parts mean what they mean in a schedule.
--
-- At clock changes, the function does what schedules with fixed times do: a time that the clock
-- skips becomes the end of the gap, and of a time that occurs twice, the first one counts.
-- PostgreSQL's AT TIME ZONE does neither.
CREATE OR REPLACE FUNCTION jobctl.next_time(
    at time,
    days text DEFAULT '*',
    time_zone text DEFAULT 'UTC',
    after timestamptz DEFAULT now()
)
RETURNS timestamptz
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
-- The function changes this setting to test the name of a zone. This line restores the caller's
-- value at the end.
SET timezone = 'UTC'
AS $$
DECLARE
    day_form CONSTANT text :=
        '(lw?|(mon|tue|wed|thu|fri|sat|sun)(#[1-5]|l|-(mon|tue|wed|thu|fri|sat|sun))?)';
    reason text;
    zone_name text;
    shown timestamp;
    -- The differences to UTC before and after a clock change near the time; equal without a change.
    early interval;
    late interval;
    lower_bound timestamptz;
    middle timestamptz;
    result timestamptz;
BEGIN
    reason := CASE
        WHEN num_nulls(at, days, time_zone, after) > 0
            THEN 'an argument is NULL'
        WHEN at = '24:00'
            THEN 'at is out of range; allowed are 00:00 to 23:59:59'
        WHEN lower(days COLLATE "C")
                !~ replace('^([*]|DAY(,DAY)*)$', 'DAY', day_form)
            THEN 'days must be *, or days like mon,wed, mon-fri, mon#1, friL, L or LW'
        -- The search below begins a day before `after` and ends up to 190 days later.
        WHEN after < '0001-01-02 00:00Z'
            OR after >= CASE
                WHEN days ~* '[#l]' THEN '9999-06-01 00:00Z'
                ELSE '9999-12-01 00:00Z'
            END::timestamptz
            THEN 'after is out of range; allowed are the years 1 to 9999'
    END;
    -- Accept the names that `apply` accepts: those of the files of the zone data, in their case,
    -- see src/zone_data.rs of the crate cron-zone.
    -- PostgreSQL also accepts a name in another case, and rules such as CEST-2. The setting then
    -- shows the name of the file, or the rule in capitals. So the comparison below rejects names in
    -- another case, and rules with small letters. The patterns reject the other rules: texts with a
    -- digit and without a small letter, except the names of files that look like this.
    -- pg_timezone_names would read 1,200 files.
    IF reason IS NULL AND time_zone <> 'UTC' THEN
        IF time_zone ~ '^[A-Z][A-Za-z0-9_+-]*(/[A-Z][A-Za-z0-9_+-]*)*$'
            AND (
                time_zone ~ '[a-z]|^[^0-9]+$'
                OR time_zone ~ '^(CST6CDT|EST5EDT|MST7MDT|PST8PDT|GMT[+-]?0)$'
            )
        THEN
            BEGIN
                zone_name := set_config('TimeZone', time_zone, true);
            EXCEPTION WHEN invalid_parameter_value THEN
                zone_name := NULL;
            END;
        END IF;
        IF zone_name IS DISTINCT FROM time_zone THEN
            reason := format(
                'there is no time zone `%s`; write a name such as Europe/Berlin, or UTC',
                left(time_zone, 64)
            );
        END IF;
    END IF;
    IF reason IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'cannot compute a time: ' || reason;
    END IF;
    -- Begin a day earlier: if the clock skips a whole day, a time on that day becomes the end of
    -- the gap, which may be later than `after`.
    FOR shown IN
        SELECT candidate.day + next_time.at
        FROM generate_series(
            date_trunc('day', after AT TIME ZONE time_zone) - interval '1 day',
            -- Every day of the week comes within 9 days. But several months in a row can lack a
            -- fifth Monday.
            after AT TIME ZONE time_zone
                + CASE WHEN days ~* '[#l]' THEN interval '190 days' ELSE interval '9 days' END,
            '1 day'
        ) AS candidate (day)
        WHERE days = '*'
            OR EXISTS (
                SELECT
                FROM unnest(string_to_array(lower(days COLLATE "C"), ',')) AS part
                WHERE jobctl.is_on_day(candidate.day, part)
            )
        ORDER BY candidate.day
    LOOP
        -- No zone differs from UTC by more than 16 hours, so these two instants are before and
        -- after the one at which the clock shows this time.
        middle := shown AT TIME ZONE 'UTC' - interval '16 hours';
        early := middle AT TIME ZONE time_zone - middle AT TIME ZONE 'UTC';
        middle := shown AT TIME ZONE 'UTC' + interval '16 hours';
        late := middle AT TIME ZONE time_zone - middle AT TIME ZONE 'UTC';
        SELECT min(candidate.instant) INTO result
        FROM (VALUES
            ((shown - early) AT TIME ZONE 'UTC'),
            ((shown - late) AT TIME ZONE 'UTC')
        ) AS candidate (instant)
        WHERE candidate.instant AT TIME ZONE time_zone = shown;
        IF result IS NULL THEN
            -- The clock skips this time. Find the second of the clock change between the two times
            -- by bisection.
            lower_bound := date_trunc('second', (shown - late) AT TIME ZONE 'UTC');
            result := date_trunc('second', (shown - early) AT TIME ZONE 'UTC');
            WHILE result - lower_bound > interval '1 second' LOOP
                middle := date_trunc('second', lower_bound + (result - lower_bound) / 2);
                IF middle AT TIME ZONE time_zone - middle AT TIME ZONE 'UTC' = early THEN
                    lower_bound := middle;
                ELSE
                    result := middle;
                END IF;
            END LOOP;
        END IF;
        IF result > after THEN
            RETURN result;
        END IF;
    END LOOP;
END
$$;
