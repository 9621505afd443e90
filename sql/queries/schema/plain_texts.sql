-- Makes PostgreSQL write dates, intervals and names as in docs/schema.sql, until the end of the
-- transaction. `migrate` needs this, too, because a function keeps the quotes of names in its
-- settings. One row.
SELECT
    set_config('DateStyle', 'ISO', true),
    set_config('IntervalStyle', 'postgres', true),
    set_config('quote_all_identifiers', 'off', true)
