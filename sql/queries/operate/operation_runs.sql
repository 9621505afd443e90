-- Lists the runs that an operation changed, by id.
-- $1  operation
SELECT DISTINCT event.run_id
FROM jobctl.job_events AS event
WHERE event.operation = $1::text
    AND event.run_id IS NOT NULL
ORDER BY event.run_id
