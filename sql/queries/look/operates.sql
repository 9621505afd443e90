-- Whether the current role has the privileges of an operator. One row.
SELECT
    has_column_privilege('jobctl.job_runs', 'cancel_requested_at', 'UPDATE')
    AND has_column_privilege('jobctl.job_definitions', 'paused_at', 'UPDATE') AS operates
