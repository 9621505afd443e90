-- Lists events of the trail that prune_events.sql may delete, the oldest first.
-- $1  age, seconds; at least 90 days    $2  limit
SELECT event.id
FROM jobctl.job_events AS event
WHERE event.recorded_at < now() - greatest(make_interval(secs => $1::float8), interval '90 days')
    -- Keep the event of a pause that lasts: `jobctl jobs` names the person that paused the job.
    AND NOT EXISTS (
        SELECT FROM jobctl.job_definitions AS definition
        WHERE definition.name = event.job
            AND definition.paused_at <= event.recorded_at
            AND event.action = 'pause'
    )
ORDER BY event.id
LIMIT $2::bigint
