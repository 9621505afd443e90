-- For a worker that runs `tick --prune`, in addition to the worker's set.
GRANT DELETE ON jobctl.job_runs, jobctl.job_events TO {role};
