-- Returns why the expression of a schedule is wrong, or NULL if it is valid. The rules are those of
-- the schedules of definitions, see src/expression.rs of the crate cron-zone. Raises an error if
-- the time zone is wrong. Internal: only jobctl calls it.
CREATE OR REPLACE FUNCTION jobctl.schedule_error(expression text, time_zone text)
RETURNS text
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
-- Keeps the plans, because new plans would double the time of a call.
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    aliases CONSTANT jsonb := '{
        "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *",
        "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *",
        "@annually": "0 0 1 1 *"
    }';
    names CONSTANT text[] := '{minute,hour,day-of-month,month,day-of-week}';
    lowest CONSTANT integer[] := '{0,0,1,1,0}';
    highest CONSTANT integer[] := '{59,23,31,12,7}';
    months CONSTANT text[] := '{jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec}';
    days CONSTANT text[] := '{sun,mon,tue,wed,thu,fri,sat}';
    allowed CONSTANT text[] := ARRAY[
        '0 to 59', '0 to 23', '1 to 31, L or LW', '1 to 12 or jan to dec',
        '0 to 7 or sun to sat, also with #1 to #5 or L'
    ];
    spaces CONSTANT text := E' \t\n\f\r';
    wanted text := btrim(schedule_error.expression, spaces);
    fields text[];
    words text[];
    item text;
    lower_item text;
    parts text[];
    low integer;
    high integer;
    step integer;
    seconds numeric;
    numbers integer[];
    -- What the last three fields match. special_days has `l` and `lw`, whose days depend on the
    -- month.
    of_month integer[];
    in_months integer[];
    special_days text[] := '{}';
    weekdays text[] := '{}';
    needs_both boolean;
BEGIN
    -- Raises the error of a wrong time zone.
    PERFORM jobctl.next_time('00:00', '*', schedule_error.time_zone);
    IF wanted IS NULL THEN
        RETURN 'schedule is NULL';
    ELSIF octet_length(wanted) > 1000 THEN
        RETURN 'schedule is longer than 1000 bytes';
    ELSIF wanted ~ '^@every ' THEN
        wanted := btrim(substr(wanted, 8), spaces);
        IF wanted ~ '^-[0-9]' THEN
            RETURN format('`%s` is negative; write 30s, 5m, 2h, 1d or 1h30m', wanted);
        ELSIF wanted !~ E'^([0-9]{1,12}([.][0-9]{1,9})?[ \t]*(ms|[smhdw])[ \t]*)+$' THEN
            RETURN format('`%s` is not a duration; write 30s, 5m, 2h, 1d or 1h30m', wanted);
        END IF;
        SELECT sum(
            part[1]::numeric * CASE part[2]
                WHEN 'ms' THEN 0.001
                WHEN 's' THEN 1
                WHEN 'm' THEN 60
                WHEN 'h' THEN 3600
                WHEN 'd' THEN 86400
                WHEN 'w' THEN 604800
            END
        )
        INTO seconds
        FROM regexp_matches(wanted, E'([0-9.]+)[ \t]*(ms|[smhdw])', 'g') AS part;
        RETURN CASE
            WHEN seconds NOT BETWEEN 60 AND 365 * 86400
                THEN format('`%s` is out of range; allowed are 1m to 365d', wanted)
            WHEN seconds % 60 <> 0
                THEN format('`%s` in `@every` is not a number of whole minutes', wanted)
        END;
    ELSIF wanted ~ '^@' AND NOT aliases ? wanted THEN
        RETURN format(
            '`%s` is not a schedule; write @hourly, @daily, @midnight, @weekly, @monthly, '
            '@yearly, @annually, @every 90m or five fields',
            wanted
        );
    END IF;
    fields := regexp_split_to_array(coalesce(aliases ->> wanted, wanted), '[' || spaces || ']+');
    IF cardinality(fields) <> 5 THEN
        RETURN format(
            '`%s` does not have five fields: minute, hour, day of month, month, day of week',
            wanted
        );
    END IF;
    FOR place IN 1..5 LOOP
        words := CASE place WHEN 4 THEN months WHEN 5 THEN days ELSE '{}' END;
        numbers := '{}';
        FOREACH item IN ARRAY string_to_array(fields[place], ',') LOOP
            lower_item := lower(item COLLATE "C");
            IF place = 3 AND lower_item IN ('l', 'lw') THEN
                special_days := special_days || lower_item;
                CONTINUE;
            END IF;
            -- The parts: 1 the star, 2 and 3 the ends of a range, 4 the step, 5 the suffix of a day
            -- of the week (#1 to #5, or l).
            parts := regexp_match(
                lower_item,
                replace(
                    '^(?:([*])|VALUE(?:-VALUE)?)(?:/0*([0-9]{1,9}))?(#[1-5]|l)?$',
                    'VALUE',
                    '(' || array_to_string(array_prepend('[0-9]+', words), '|') || ')'
                )
            );
            -- `low` and `high` are the first and the last number of the item. A number above 1,000
            -- becomes 1,000, which fits an integer, and is too large for every field.
            low := CASE
                WHEN parts[2] ~ '^[0-9]' THEN least(parts[2]::numeric, 1000)::integer
                WHEN parts[1] IS NULL
                    THEN array_position(words, parts[2]) + lowest[place] - 1
                ELSE lowest[place]
            END;
            high := CASE
                WHEN parts[3] ~ '^[0-9]' THEN least(parts[3]::numeric, 1000)::integer
                WHEN parts[3] IS NOT NULL
                    THEN array_position(words, parts[3]) + lowest[place] - 1
                WHEN parts[1] IS NULL THEN low
                WHEN place = 5 THEN 6
                ELSE highest[place]
            END;
            -- Sunday is 0, but as the end of a range it is 7: `sat-sun`.
            IF place = 5 AND high = 0 AND low > 0 THEN
                high := 7;
            END IF;
            step := least(coalesce(parts[4]::numeric, 1), 1000)::integer;
            -- IS NOT TRUE: if the item does not match the pattern, `low` is NULL. A suffix is only
            -- allowed after a single day of the week.
            IF (low >= lowest[place] AND greatest(low, high) <= highest[place]) IS NOT TRUE
                OR parts[5] IS NOT NULL
                AND (place < 5 OR num_nonnulls(parts[1], parts[3], parts[4]) > 0)
            THEN
                RETURN format(
                    '`%s` in the %s field is wrong; allowed are %s',
                    item,
                    names[place],
                    allowed[place]
                );
            ELSIF low > high THEN
                RETURN format('`%s` in the %s field runs backwards', item, names[place]);
            -- A step needs the star or a range.
            ELSIF step = 0 OR parts[4] IS NOT NULL AND num_nonnulls(parts[1], parts[3]) = 0 THEN
                RETURN format(
                    'the step of `%s` in the %s field is wrong; write a range and a number, as '
                    'in %s-%s/2',
                    item,
                    names[place],
                    low,
                    highest[place]
                );
            END IF;
            IF place = 5 THEN
                weekdays := weekdays || ARRAY(
                    SELECT days[value % 7 + 1] || coalesce(parts[5], '')
                    FROM generate_series(low, high, step) AS value
                );
            ELSE
                numbers := numbers || ARRAY(SELECT generate_series(low, high, step));
            END IF;
        END LOOP;
        of_month := CASE place WHEN 3 THEN numbers ELSE of_month END;
        in_months := CASE place WHEN 4 THEN numbers ELSE in_months END;
    END LOOP;
    -- As in cron: if the day of the month and the day of the week are both restricted, a day needs
    -- to match only one of them.
    needs_both := fields[3] ~ '^[*]' OR fields[5] ~ '^[*]';
    -- Read the days of 41 years, up to the first one that matches: within 40 years, every date
    -- falls on every day of the week.
    IF NOT EXISTS (
        SELECT
        FROM (
            SELECT current_date + generate_series(0, 41 * 366 - 1) + time '00:00' AS day
        ) AS candidate
        CROSS JOIN LATERAL (
            SELECT
                extract(day FROM candidate.day)::integer = ANY (of_month)
                    OR EXISTS (
                        SELECT FROM unnest(special_days) AS part
                        WHERE jobctl.is_on_day(candidate.day, part)
                    ) AS is_day,
                EXISTS (
                    SELECT FROM unnest(weekdays) AS part
                    WHERE jobctl.is_on_day(candidate.day, part)
                ) AS is_weekday
        ) AS found
        WHERE extract(month FROM candidate.day)::integer = ANY (in_months)
            AND CASE
                WHEN needs_both THEN found.is_day AND found.is_weekday
                ELSE found.is_day OR found.is_weekday
            END
    ) THEN
        RETURN format('`%s` never fires', wanted);
    END IF;
    RETURN NULL;
END
$$;
