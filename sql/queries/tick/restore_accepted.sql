-- Returns whether the loss of a worker's tick needs no person: an operator accepted a restored
-- database since then, or the worker was forgotten.
-- $1  worker    $2  lost: the time of the tick
SELECT EXISTS (
    SELECT FROM jobctl.job_events AS event
    WHERE event.recorded_at >= $2::timestamptz
        AND (
            event.action = 'accept-restore'
            OR (event.action = 'forget' AND event.detail = 'worker ' || $1::text)
        )
)
