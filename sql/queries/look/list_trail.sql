-- Lists events of all runs, definitions, queues and workers, the newest first.
-- $1  since    $2  until, exclusive; NULL for no bound
-- $3  by: a text in the user, the host or the login. Upper and lower case do not matter, see
--     list_ids.sql
-- $4  action; NULL for all except alerts    $5  job    $6  queue    $7  worker; NULL for any
-- $8  limit
-- $9  grouped: whether to return one row for all events that one command wrote for runs. Its
--     `run_id` is the number of runs, such as `12 runs`. Its job and detail are NULL if they
--     differ. Has no effect with a queue
-- An event is about a queue if it holds or releases the queue, or changes a run that is in it now.
-- It is about a worker if it names the worker, or if a tick of the worker wrote it.
WITH matching AS (
    SELECT event.*
    FROM jobctl.job_events AS event
    CROSS JOIN LATERAL (
        SELECT
            lower(
                lower(concat_ws(E'\n', event.host_user, event.recorded_by) COLLATE "C")
                    COLLATE "default"
            ) AS users,
            lower(lower($3::text COLLATE "C") COLLATE "default") AS asked
    ) AS lowered
    WHERE event.recorded_at >= coalesce($1::timestamptz, '-infinity')
        AND event.recorded_at < coalesce($2::timestamptz, 'infinity')
        AND ($3::text IS NULL OR strpos(lowered.users, lowered.asked) > 0)
        -- Without an action, leave out alerts, because they change nothing.
        AND event.action = coalesce($4::text, nullif(event.action, 'alert'))
        AND ($5::text IS NULL OR event.job = $5::text)
        AND (
            $6::text IS NULL
            OR event.detail = 'queue ' || $6::text
            OR EXISTS (
                SELECT FROM jobctl.job_runs AS run
                WHERE run.id = event.run_id
                    AND run.queue = $6::text
            )
        )
        AND (
            $7::text IS NULL
            OR event.detail IN ('worker ' || $7::text, $7::text)
            OR event.host_user = $7::text
        )
        -- Grouped: of the events of a command, only the newest.
        AND NOT (
            $9::boolean
            AND $6::text IS NULL
            AND EXISTS (
                SELECT FROM jobctl.job_events AS newer
                WHERE newer.operation = event.operation
                    AND newer.id > event.id
                    AND newer.recorded_at < coalesce($2::timestamptz, 'infinity')
                    AND ($5::text IS NULL OR newer.job = $5::text)
            )
        )
    ORDER BY event.id DESC
    LIMIT $8::bigint
)
SELECT
    event.recorded_at,
    event.action,
    CASE
        WHEN command.events > 1
            THEN to_jsonb(to_char(command.events, 'FM999,999,999,999') || ' runs')
        ELSE to_jsonb(event.run_id)
    END AS run_id,
    CASE WHEN coalesce(command.jobs < 2, true) THEN event.job END AS job_type,
    event.recorded_by,
    event.host_user,
    event.reason,
    CASE WHEN coalesce(command.details < 2, true) THEN event.detail END AS detail,
    event.operation,
    now() AS now
FROM matching AS event
-- Grouped: counts the events of the command; else `command` is a row of zeros.
LEFT JOIN LATERAL (
    SELECT
        count(DISTINCT same.run_id) AS events,
        count(DISTINCT same.job) AS jobs,
        count(DISTINCT same.detail) AS details
    FROM jobctl.job_events AS same
    WHERE $9::boolean
        AND $6::text IS NULL
        AND same.operation = event.operation
        AND ($5::text IS NULL OR same.job = $5::text)
) AS command ON true
ORDER BY event.id DESC
