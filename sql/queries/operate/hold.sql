-- Holds a job, a queue, a worker or all runs, so that claims skip them. Also deletes holds that
-- have ended.
-- $1  scope    $2  name, empty for all    $3  lasts, seconds; NULL: until it is released
-- $4  host_user    $5  reason
-- One row: when the hold ends; NULL: when it is released.
WITH ended AS (
    DELETE FROM jobctl.job_holds AS hold
    WHERE hold.held_until <= now()
),
held AS (
    INSERT INTO jobctl.job_holds (scope, name, held_until, host_user, reason)
    VALUES ($1::text, $2::text, now() + make_interval(secs => $3::float8), $4::text, $5::text)
    RETURNING held_until
),
trail AS (
    INSERT INTO jobctl.job_events (action, job, host_user, reason, detail)
    VALUES (
        'hold',
        CASE WHEN $1::text = 'job' THEN $2::text END,
        $4::text,
        $5::text,
        rtrim($1::text || ' ' || $2::text)
    )
)
SELECT held.held_until
FROM jobctl.require_written('job_holds', chosen => 1, written => (SELECT count(*) FROM held))
LEFT JOIN held ON true
