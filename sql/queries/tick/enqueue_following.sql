-- Enqueues a run of each of these jobs, which follow others, if each run that it follows is there.
-- Leaves out a time of a job if another session has locked one of its rows.
-- Arrays, one element a job and time: $1  definitions    $2  times
-- One row: whether anything has changed.
SELECT jobctl.enqueue_following($1::bigint[], $2::timestamptz[]) AS has_changed
