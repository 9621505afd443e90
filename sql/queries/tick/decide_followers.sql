-- Decides about blocked runs after a predecessor has ended: blocked -> queued or cancelled, or the
-- run stays blocked because of its other predecessors. Skips runs that other sessions have locked.
-- $1  ids of blocked runs
-- One row: whether anything has changed (`decides`), and the cancelled runs that other runs wait
-- for (`followed`).
SELECT decided.decides, decided.followed
FROM jobctl.decide_followers($1::bigint[]) AS decided
