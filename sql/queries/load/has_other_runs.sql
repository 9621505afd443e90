-- Returns whether the database has runs of other jobs than the load test. One row.
SELECT EXISTS (
    SELECT FROM jobctl.job_runs AS run
    WHERE run.job_type <> 'jobctl-load'
) AS has_other_runs
