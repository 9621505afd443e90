-- Changes values that blocked, queued, failed or dead runs got at enqueue. A NULL keeps the value.
-- If run_at changes, expires_at moves by the same time.
-- $1  ids      $2  from: statuses that a run may have    $3  host_user    $4  reason
-- $5  queue    $6  priority    $7  run_at    $8  after, seconds from now
-- $9  max_attempts, more than the run has used    $10 timeout, seconds
-- $11 backoff  $12 operation, for undo.sql
-- A row per existing id: its status, and whether it has these values now (`granted`). `is_blocked`
-- is always false, because an edit blocks no run.
WITH wanted AS (
    SELECT
        $5::text AS queue,
        $6::integer AS priority,
        -- At least now(): with a time in the past, the run would start before runs that are due
        -- already.
        CASE WHEN num_nonnulls($7::timestamptz, $8::float8) > 0
            THEN greatest($7::timestamptz, now() + make_interval(secs => coalesce($8::float8, 0)))
        END AS run_at,
        $9::integer AS max_attempts,
        make_interval(secs => $10::float8) AS timeout,
        $11::text AS backoff
),
asked AS MATERIALIZED (
    SELECT
        run.id,
        run.job_type,
        run.status,
        run.queue,
        run.priority,
        run.run_at,
        run.attempts - run.uncounted_attempts AS counted_attempts,
        run.max_attempts,
        run.timeout,
        run.backoff,
        jsonb_build_object(
            'queue', run.queue,
            'priority', run.priority,
            'run_at', run.run_at,
            'expires_at', run.expires_at,
            'max_attempts', run.max_attempts,
            'timeout', run.timeout,
            'backoff', run.backoff
        ) AS before
    FROM jobctl.job_runs AS run
    WHERE run.id = ANY ($1::bigint[])
    ORDER BY run.id
    FOR NO KEY UPDATE
),
granted AS (
    SELECT
        asked.id,
        asked.job_type,
        asked.before,
        -- The changed values, for the trail. Empty: the run has the wanted values already, so
        -- nothing is written. 1000 is the limit of the constraint texts_are_short.
        left(concat_ws(
            ', ',
            CASE WHEN wanted.queue <> asked.queue
                THEN format('queue %s -> %s', asked.queue, wanted.queue)
            END,
            CASE WHEN wanted.priority <> asked.priority
                THEN format('priority %s -> %s', asked.priority, wanted.priority)
            END,
            CASE WHEN wanted.run_at <> asked.run_at
                THEN format(
                    'run_at %s -> %s',
                    to_char(asked.run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
                    to_char(wanted.run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
                )
            END,
            CASE WHEN wanted.max_attempts <> asked.max_attempts
                THEN format('max_attempts %s -> %s', asked.max_attempts, wanted.max_attempts)
            END,
            CASE WHEN wanted.timeout <> coalesce(asked.timeout, '0')
                THEN format(
                    'timeout %s -> %ss',
                    coalesce(extract(epoch FROM asked.timeout)::float8 || 's', 'none'),
                    extract(epoch FROM wanted.timeout)::float8
                )
            END,
            CASE WHEN wanted.backoff <> asked.backoff
                THEN format('backoff %s -> %s', asked.backoff, wanted.backoff)
            END
        ), 1000) AS detail
    FROM asked
    CROSS JOIN wanted
    WHERE asked.status IN ('blocked', 'queued', 'failed', 'dead')
        AND asked.status = ANY ($2::text[])
        AND (wanted.max_attempts IS NULL OR asked.counted_attempts < wanted.max_attempts)
),
edited AS (
    UPDATE jobctl.job_runs AS run
    SET
        queue = coalesce(wanted.queue, run.queue),
        priority = coalesce(wanted.priority, run.priority),
        run_at = coalesce(wanted.run_at, run.run_at),
        -- The CASE keeps a run without an expiry from getting one: `least` ignores NULL. The
        -- constraint times_are_dates allows no later time than the year 9999.
        expires_at = CASE
            WHEN run.expires_at IS NOT NULL
                THEN least(
                    run.expires_at + (coalesce(wanted.run_at, run.run_at) - run.run_at),
                    '9999-12-31 23:59:59Z'
                )
        END,
        max_attempts = coalesce(wanted.max_attempts, run.max_attempts),
        timeout = coalesce(wanted.timeout, run.timeout),
        backoff = coalesce(wanted.backoff, run.backoff),
        updated_at = now()
    FROM granted
    CROSS JOIN wanted
    WHERE run.id = granted.id
        AND granted.detail <> ''
    RETURNING run.id
),
trail AS (
    INSERT INTO jobctl.job_events (
        action,
        run_id,
        job,
        host_user,
        reason,
        detail,
        operation,
        before
    )
    SELECT
        'edit' AS action,
        granted.id,
        granted.job_type,
        $3::text AS host_user,
        $4::text AS reason,
        granted.detail,
        $12::text AS operation,
        granted.before
    FROM granted
    WHERE granted.detail <> ''
)
SELECT
    asked.id,
    asked.status,
    granted.id IS NOT NULL AS granted,
    false AS is_blocked
FROM asked
CROSS JOIN jobctl.require_written(
    'job_runs',
    chosen => (SELECT count(*) FROM granted WHERE granted.detail <> ''),
    written => (SELECT count(*) FROM edited)
)
LEFT JOIN granted ON granted.id = asked.id
