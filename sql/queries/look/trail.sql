-- Events of all runs, definitions, queues and workers, the newest first.
-- $1  since    $2  until, exclusive; NULL for no bound
-- $3  by, a text in the user, the host or the login, in any case of letters, see list_ids.sql
-- $4  action; NULL for any but alerts    $5  job    $6  queue    $7  worker; NULL for any
-- $8  limit
-- $9  grouped: events of runs that one command wrote are one row: they have the same action, login,
--     user, reason and detail, and at most a minute lies between them. `run_id` is then their
--     number, as 12 runs; the job, and the old status in `detail`, are NULL if they differ.
-- The event of a queue holds or releases it, or changes a run that is in it now. The event of a
-- worker is about the worker, or was written by its ticks.
WITH matching AS (
    SELECT
        event.*,
        CASE
            WHEN $9::boolean
                AND event.run_id IS NOT NULL
                THEN ROW(
                    event.action,
                    event.recorded_by,
                    event.host_user,
                    event.reason,
                    CASE WHEN event.detail NOT LIKE 'was %' THEN event.detail END
                )::text
        END AS act
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
        -- Alerts are no changes.
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
),
-- The windows have one order, so that the limit also ends the search.
neighbours AS (
    SELECT
        event.*,
        row_number() OVER newest AS place,
        coalesce(
            event.act = lag(event.act) OVER newest
            AND lag(event.recorded_at) OVER newest < event.recorded_at + interval '1 minute',
            false
        ) AS has_newer,
        coalesce(
            event.act = lead(event.act) OVER newest
            AND event.recorded_at < lead(event.recorded_at) OVER newest + interval '1 minute',
            false
        ) AS has_older,
        event.job IS DISTINCT FROM lag(event.job) OVER newest AS is_other_job,
        event.detail IS DISTINCT FROM lag(event.detail) OVER newest AS is_other_detail
    FROM matching AS event
    WINDOW newest AS (ORDER BY event.id DESC)
),
ends AS (
    SELECT
        event.*,
        count(*) FILTER (WHERE event.is_other_job) OVER newest AS jobs,
        count(*) FILTER (WHERE event.is_other_detail) OVER newest AS details
    FROM neighbours AS event
    WINDOW newest AS (ORDER BY event.id DESC)
),
counted AS (
    SELECT
        event.*,
        -- The next row is the last one of the group.
        CASE WHEN event.has_older THEN lead(event.place) OVER newest - event.place END AS others,
        event.has_older AND lead(event.jobs) OVER newest > event.jobs AS has_jobs,
        event.has_older AND lead(event.details) OVER newest > event.details AS has_details
    FROM ends AS event
    WHERE NOT (event.has_newer AND event.has_older)
    WINDOW newest AS (ORDER BY event.id DESC)
)
SELECT
    event.recorded_at,
    event.action,
    coalesce(
        to_jsonb(to_char(event.others + 1, 'FM999,999,999,999') || ' runs'),
        to_jsonb(event.run_id)
    ) AS run_id,
    CASE WHEN NOT event.has_jobs THEN event.job END AS job_type,
    event.recorded_by,
    event.host_user,
    event.reason,
    CASE WHEN NOT event.has_details THEN event.detail END AS detail,
    now() AS now
FROM counted AS event
WHERE NOT event.has_newer
ORDER BY event.id DESC
LIMIT $8::bigint
