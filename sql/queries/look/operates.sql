-- Returns what the current role may do and see beyond a viewer: the commands of operators
-- (`operates`), and sequences_behind.sql (`sees_sequences`). One row.
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
