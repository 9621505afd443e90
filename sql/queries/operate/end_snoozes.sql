-- Ends the holds by these runs, which asked for a later attempt. A statement of its own: the one
-- before it may have waited for the result that made the hold, and does not see it.
-- $1  ids
DELETE FROM jobctl.job_holds AS hold
WHERE hold.run_id = ANY ($1::bigint[])
