-- Returns what the current role may do, judged by some privileges that each task needs. Reads only
-- catalogs, which every role may read.
-- One row. `coalesce`: without the schema, the role may do nothing.
SELECT
    coalesce(has_schema_privilege(to_regnamespace('jobctl'), 'USAGE'), false) AS enters,
    coalesce(functions.enqueues, false) AS enqueues,
    coalesce(functions.records_effects, false) AS records_effects,
    coalesce(relations.ticks AND functions.ticks, false) AS ticks,
    coalesce(relations.operates, false) AS operates,
    coalesce(relations.prunes, false) AS prunes,
    coalesce(relations.views, false) AS views
FROM (
    SELECT
        bool_and(function.may)
            FILTER (WHERE function.name IN ('enqueue', 'enqueue_runs', 'try_enqueue')) AS enqueues,
        bool_and(function.may) FILTER (WHERE function.name IN ('record_effect', 'effect_result'))
            AS records_effects,
        bool_and(function.may)
            FILTER (WHERE function.name IN ('decide_followers', 'end_runs', 'fire')) AS ticks
    FROM (
        SELECT proname AS name, has_function_privilege(oid, 'EXECUTE') AS may
        FROM pg_proc
        WHERE pronamespace = to_regnamespace('jobctl')
    ) AS function
) AS functions
CROSS JOIN (
    SELECT
        -- bool_and ignores the NULLs that CASE returns for other tables.
        bool_and(CASE relname
            WHEN 'job_runs'
                THEN has_table_privilege(oid, 'SELECT')
                    AND has_column_privilege(oid, 'attempts', 'UPDATE')
                    AND has_column_privilege(oid, 'live_output', 'UPDATE')
            WHEN 'job_attempts' THEN has_table_privilege(oid, 'INSERT')
            WHEN 'job_workers'
                THEN has_table_privilege(oid, 'INSERT') AND has_table_privilege(oid, 'UPDATE')
            WHEN 'job_locked_runs'
                THEN has_table_privilege(oid, 'INSERT')
                    AND has_table_privilege(oid, 'UPDATE')
                    AND has_table_privilege(oid, 'DELETE')
        END) AS ticks,
        bool_and(CASE relname
            WHEN 'job_runs' THEN has_column_privilege(oid, 'cancel_requested_at', 'UPDATE')
            WHEN 'job_definitions' THEN has_column_privilege(oid, 'paused_at', 'UPDATE')
        END) AS operates,
        bool_and(has_table_privilege(oid, 'DELETE'))
            FILTER (WHERE relname IN ('job_runs', 'job_events')) AS prunes,
        bool_and(has_table_privilege(oid, 'SELECT'))
            FILTER (WHERE relname IN ('dead_runs', 'long_running_runs')) AS views
    FROM pg_class
    WHERE relnamespace = to_regnamespace('jobctl')
) AS relations
