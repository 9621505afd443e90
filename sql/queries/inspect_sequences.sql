-- Sequences that would give ids that their tables have, as a subscriber of logical replication has them: tables are
-- replicated, sequences are not.
-- A row per such sequence: its name, and the statement that sets it.
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
) AS sequence
WHERE sequence.next <= sequence.newest
