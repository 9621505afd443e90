-- Enqueues these jobs, which follow others. Skips locked ones, see the function.
-- Arrays, one element a job and time: $1  definitions    $2  times
-- One row: whether anything has changed.
SELECT jobctl.enqueue_following($1::bigint[], $2::timestamptz[]) AS has_changed
