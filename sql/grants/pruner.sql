-- For a worker that runs `tick --prune`, in addition to worker.sql. `jobctl grants` does not print
-- these privileges, but `doctor` accepts them.
GRANT DELETE ON jobctl.job_runs, jobctl.job_events TO {role};
