-- Deletes events of the trail, which never change.
-- $1  ids
DELETE FROM jobctl.job_events AS event
WHERE event.id = ANY ($1::bigint[])
