-- Returns whether a text is a valid backoff. src/job/backoff.rs has the same grammar. Internal:
-- only jobctl calls it.
CREATE OR REPLACE FUNCTION jobctl.is_backoff(backoff text)
RETURNS boolean
LANGUAGE plpgsql
IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- The simplest backoffs need only this check: with two digits, all are shorter than the limit
    -- of 30 days. The check below is slow.
    IF backoff ~ '^(fixed|polynomial|exponential):[0-9]{1,2}(ms|[smh])$' THEN
        RETURN true;
    END IF;
    RETURN (
        SELECT backoff ~ replace(
                '^((fixed|polynomial):DELAY|exponential:DELAY([.][.]DELAY)?|list:DELAY(,DELAY)*)$',
                'DELAY',
                ' *([0-9][0-9 ]*(ms|[smhdw]) *)+'
            )
            AND bool_and(delay.seconds <= 30 * 86400)
            -- In `exponential:1m..30m`, the first delay must not be the longer one.
            AND (
                backoff NOT LIKE 'exponential:%'
                OR min(delay.seconds) = (array_agg(delay.seconds ORDER BY delay.ordinal))[1]
            )
        FROM (
            SELECT given.ordinal, (
                SELECT coalesce(sum(replace(part[1], ' ', '')::numeric * CASE part[2]
                    WHEN 'ms' THEN 0.001
                    WHEN 's' THEN 1
                    WHEN 'm' THEN 60
                    WHEN 'h' THEN 3600
                    WHEN 'd' THEN 86400
                    WHEN 'w' THEN 604800
                END), 0)
                FROM regexp_matches(given.text, '([0-9][0-9 ]*)(ms|[smhdw])', 'g') AS part
            ) AS seconds
            FROM regexp_split_to_table(backoff, ',|[.][.]') WITH ORDINALITY AS given (text, ordinal)
        ) AS delay
    );
END
$$;
