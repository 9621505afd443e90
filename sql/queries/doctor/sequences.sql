-- Finds sequences that would return ids that are already in their tables. Subscribers of logical
-- replication have such sequences, because it replicates tables but not sequences.
-- A row per such sequence: its name, and the statement that corrects it.
SELECT
    sequence.name,
    format('SELECT setval(%L, %s)', 'jobctl.' || sequence.name, sequence.newest) AS setval
FROM (
    SELECT
        'job_runs_id_seq' AS name,
        runs.last_value + runs.is_called::integer AS next,
        (SELECT max(run.id) FROM jobctl.job_runs AS run) AS newest
    FROM jobctl.job_runs_id_seq AS runs
    UNION ALL
    SELECT
        'job_definitions_id_seq',
        definitions.last_value + definitions.is_called::integer,
        (SELECT max(definition.id) FROM jobctl.job_definitions AS definition)
    FROM jobctl.job_definitions_id_seq AS definitions
    UNION ALL
    SELECT
        'job_events_id_seq',
        events.last_value + events.is_called::integer,
        (SELECT max(event.id) FROM jobctl.job_events AS event)
    FROM jobctl.job_events_id_seq AS events
) AS sequence
WHERE sequence.next <= sequence.newest
