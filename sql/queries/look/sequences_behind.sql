-- Finds sequences that would return ids that were used before: ids in their own tables, or ids of
-- deleted runs that other tables contain. The subscriber of a logical replication has such
-- sequences, because tables are replicated, but sequences are not.
-- A row per such sequence: its table, and the statement that corrects it.
SELECT
    sequence.table_name,
    format('SELECT setval(''jobctl.%s_id_seq'', %s)', sequence.table_name, sequence.newest)
        AS setval
FROM (
    SELECT
        'job_runs' AS table_name,
        -- last_value is the next id if the sequence was never called.
        runs.last_value + runs.is_called::integer AS next,
        greatest(
            (SELECT max(run.id) FROM jobctl.job_runs AS run),
            -- These tables may name runs that were deleted.
            (SELECT max(attempt.run_id) FROM jobctl.job_attempts AS attempt),
            (SELECT max(effect.run_id) FROM jobctl.job_effects AS effect),
            (SELECT max(event.run_id) FROM jobctl.job_events AS event)
        ) AS newest
    FROM jobctl.job_runs_id_seq AS runs
    UNION ALL
    SELECT
        'job_definitions' AS table_name,
        definitions.last_value + definitions.is_called::integer AS next,
        (SELECT max(definition.id) FROM jobctl.job_definitions AS definition) AS newest
    FROM jobctl.job_definitions_id_seq AS definitions
    UNION ALL
    SELECT
        'job_events' AS table_name,
        events.last_value + events.is_called::integer AS next,
        (SELECT max(event.id) FROM jobctl.job_events AS event) AS newest
    FROM jobctl.job_events_id_seq AS events
    UNION ALL
    SELECT
        'job_schedules' AS table_name,
        schedules.last_value + schedules.is_called::integer AS next,
        (SELECT max(schedule.id) FROM jobctl.job_schedules AS schedule) AS newest
    FROM jobctl.job_schedules_id_seq AS schedules
) AS sequence
WHERE sequence.next <= sequence.newest
