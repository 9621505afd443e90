-- Deletes these events of the trail. They need no second check, because events never change.
-- $1  ids
DELETE FROM jobctl.job_events AS event
WHERE event.id = ANY ($1::bigint[])
