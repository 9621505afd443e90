-- Enqueues the runs of jobs that follow others: one run per job and time, if each followed job has
-- a run for this time. If another session has locked a row of a time in job_predecessors, leaves
-- that time to a later call.
-- Arrays, one element a job and time: $1  definitions    $2  times
-- One row: whether anything has changed.
SELECT jobctl.enqueue_following($1::bigint[], $2::timestamptz[]) AS has_changed
