-- For a worker that runs `tick --prune`, in addition to the privileges of a worker.
GRANT DELETE ON jobctl.job_runs, jobctl.job_events TO {role};
