-- Returns whether a worker may work although a restored backup was noticed: the database lacks a
-- tick that the worker remembers, or a tick has recorded a restore. The worker may if an operator
-- has accepted a restore since then, or has forgotten the worker.
-- $1  worker    $2  lost: the time of the missing tick, or of the record
SELECT EXISTS (
    SELECT FROM jobctl.job_events AS event
    WHERE event.recorded_at >= $2::timestamptz
        AND (
            event.action = 'accept-restore'
            OR (event.action = 'forget' AND event.detail = 'worker ' || $1::text)
        )
) AS is_accepted
