-- The actions that the current role may perform, read from the catalogs, which every role may read.
-- One row.
WITH relations AS (
    SELECT
        relation.oid,
        relation.relname AS name
    FROM pg_class AS relation
    WHERE relation.relnamespace = to_regnamespace('jobctl')
),
functions AS (
    SELECT
        function.oid,
        function.proname AS name
    FROM pg_proc AS function
    WHERE function.pronamespace = to_regnamespace('jobctl')
)
SELECT
    coalesce(has_schema_privilege(to_regnamespace('jobctl'), 'USAGE'), false) AS enters,
    coalesce((
        SELECT bool_and(has_function_privilege(oid, 'EXECUTE'))
        FROM functions
        WHERE name IN ('enqueue', 'try_enqueue')
    ), false) AS enqueues,
    coalesce((
        SELECT bool_and(has_function_privilege(oid, 'EXECUTE'))
        FROM functions
        WHERE name IN ('record_effect', 'effect_result')
    ), false) AS records_effects,
    coalesce((
        SELECT bool_and(
            CASE name
                WHEN 'job_runs'
                    THEN has_table_privilege(oid, 'SELECT')
                        AND has_column_privilege(oid, 'attempts', 'UPDATE')
                        AND has_column_privilege(oid, 'live_output', 'UPDATE')
                WHEN 'job_attempts' THEN has_table_privilege(oid, 'INSERT')
                WHEN 'job_workers'
                    THEN has_table_privilege(oid, 'INSERT') AND has_table_privilege(oid, 'UPDATE')
            END
        )
        FROM relations
        WHERE name IN ('job_runs', 'job_attempts', 'job_workers')
    ) AND (
        SELECT bool_and(has_function_privilege(oid, 'EXECUTE'))
        FROM functions
        WHERE name IN ('count_attempts', 'fire')
    ), false) AS ticks,
    coalesce((
        SELECT bool_and(
            CASE name
                WHEN 'job_runs' THEN has_column_privilege(oid, 'cancel_requested_at', 'UPDATE')
                WHEN 'job_definitions' THEN has_column_privilege(oid, 'paused_at', 'UPDATE')
            END
        )
        FROM relations
        WHERE name IN ('job_runs', 'job_definitions')
    ), false) AS operates,
    coalesce((
        SELECT bool_and(has_table_privilege(oid, 'DELETE'))
        FROM relations
        WHERE name IN ('job_runs', 'job_events')
    ), false) AS prunes,
    coalesce((
        SELECT bool_and(has_table_privilege(oid, 'SELECT'))
        FROM relations
        WHERE name IN ('dead_runs', 'long_running_runs')
    ), false) AS views
