-- Lists the tables with their sizes and their last vacuum, the largest first. The numbers of live
-- and dead rows are estimates, from statistics that every role may read. `left_alone`: autovacuum
-- is off for this table.
SELECT
    relation.relname::text AS name,
    pg_size_pretty(pg_total_relation_size(relation.oid)) AS size,
    pg_relation_size(relation.oid) AS heap_bytes,
    coalesce(statistics.n_live_tup, 0) AS live,
    coalesce(statistics.n_dead_tup, 0) AS dead,
    extract(epoch FROM now() - greatest(statistics.last_vacuum, statistics.last_autovacuum))::float8
        AS vacuumed_ago,
    coalesce(relation.reloptions && '{autovacuum_enabled=false,autovacuum_enabled=off}', false)
        AS left_alone
FROM pg_class AS relation
LEFT JOIN pg_stat_all_tables AS statistics
    ON statistics.relid = relation.oid
WHERE relation.relnamespace = to_regnamespace('jobctl')
    AND relation.relkind = 'r'
ORDER BY pg_total_relation_size(relation.oid) DESC, relation.relname
