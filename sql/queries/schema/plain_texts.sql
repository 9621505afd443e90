-- Makes PostgreSQL write dates, intervals and names as in docs/schema.sql, until the end of the
-- transaction. `migrate` needs this, too: PostgreSQL stores the settings of a new function with the
-- quotes of that time. One row.
SELECT
    set_config('DateStyle', 'ISO', true) AS date_style,
    set_config('IntervalStyle', 'postgres', true) AS interval_style,
    set_config('quote_all_identifiers', 'off', true) AS quotes
