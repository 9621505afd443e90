-- The indexes that the migrations create: whether they exist and are valid, how often they were
-- used, and how many entries they had at the last count.
-- $1  names
-- A row per name; valid is NULL for a missing index.
SELECT
    expected.name,
    index.indisvalid AND index.indisready AS valid,
    coalesce(pg_stat_get_numscans(index.indexrelid), 0) AS scans,
    -- reltuples is -1 if the entries were never counted.
    greatest(relation.reltuples, 0)::bigint AS entries
FROM unnest($1::text[]) AS expected (name)
LEFT JOIN pg_class AS relation
    ON relation.relname = expected.name
    AND relation.relnamespace = to_regnamespace('jobctl')
LEFT JOIN pg_index AS index
    ON index.indexrelid = relation.oid
ORDER BY expected.name
