-- Makes PostgreSQL write times and names in definitions as in docs/schema.sql, until the end of the
-- transaction. One row.
SELECT
    set_config('TimeZone', 'UTC', true),
    set_config('DateStyle', 'ISO', true),
    set_config('IntervalStyle', 'postgres', true),
    set_config('quote_all_identifiers', 'off', true),
    set_config('standard_conforming_strings', 'on', true)
