-- blocked -> queued or cancelled: of these runs, those whose predecessors have ended. Skips locked
-- runs.
-- $1  ids
-- One row: whether anything has changed, and the cancelled runs that others wait for.
SELECT decided.decides, decided.followed
FROM jobctl.decide_followers($1::bigint[]) AS decided
