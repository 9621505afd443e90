-- Decides about those of these blocked runs whose predecessors have ended: blocked -> queued or
-- cancelled. Skips runs that other sessions have locked.
-- $1  ids
-- One row: whether anything has changed, and the cancelled runs that other runs wait for.
SELECT decided.decides, decided.followed
FROM jobctl.decide_followers($1::bigint[]) AS decided
