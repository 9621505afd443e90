-- Returns whether the current role has two rights that a viewer does not have. One row:
--   operates          it may change runs and definitions, as the commands of operators do
--   sees_sequences    it may read sequences and ids, as sequences_behind.sql does
SELECT
    has_column_privilege('jobctl.job_runs', 'cancel_requested_at', 'UPDATE')
        AND has_column_privilege('jobctl.job_definitions', 'paused_at', 'UPDATE') AS operates,
    (
        SELECT
            bool_and(
                has_sequence_privilege('jobctl.' || name || '_id_seq', 'SELECT')
                AND has_column_privilege('jobctl.' || name, 'id', 'SELECT')
            )
        FROM unnest('{job_runs, job_definitions, job_events}'::text[]) AS name
    ) AS sees_sequences
