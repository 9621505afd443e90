-- queued or failed, and due -> running: takes up to n runs, each with a lease, for a tick that holds
-- its worker's claim right.
-- $1  worker    $2  tick    $3  concurrency of the worker    $4  runs this tick holds already
-- $5  n         $6  lease, seconds    $7  queues, empty for all    $8  job types left to others
-- $9  whether to give the claim right back when fewer than n are due
-- $10 kinds of definitions left to others    $11 definitions locked by lock_limited.sql
-- Zero rows: nothing is due, nothing is free, or the right is somebody else's.
--
-- Order: smaller priority first, then run_at. The index job_runs_waiting is walked lane by lane (a
-- queue's priority), each found by one probe from the one before, so that neither runs of the future
-- nor other queues are read over. Lanes of one priority take turns by their oldest run.
--
-- SKIP LOCKED: other hosts claim at the same time, and nobody waits for anybody. NO KEY UPDATE: the
-- history's foreign key may be checked meanwhile. MATERIALIZED: without that fence the planner may
-- run the subquery once per candidate row of the UPDATE, and LIMIT 1 can claim fifty.
WITH RECURSIVE lanes AS (
    (
        SELECT run.queue, run.priority
        FROM jobctl.job_runs AS run
        WHERE run.status IN ('queued', 'failed')
        ORDER BY run.queue, run.priority
        LIMIT 1
    )
    UNION ALL
    SELECT following.queue, following.priority
    FROM lanes
    CROSS JOIN LATERAL (
        SELECT run.queue, run.priority
        FROM jobctl.job_runs AS run
        WHERE run.status IN ('queued', 'failed')
            AND (run.queue, run.priority) > (lanes.queue, lanes.priority)
        ORDER BY run.queue, run.priority
        LIMIT 1
    ) AS following
),
-- What other ticks of this worker still run leaves less for this one; a tick alone may hold more
-- than its concurrency, because very short runs are claimed a blink ahead.
room AS MATERIALIZED (
    SELECT
        CASE
            WHEN running.others <= 0 THEN $5::integer
            ELSE greatest(0, least($5::integer, $3::integer - $4::integer - running.others))
        END AS runs
    FROM jobctl.job_workers AS worker
    CROSS JOIN (
        SELECT count(*)::integer - $4::integer AS others
        FROM jobctl.job_runs AS run
        WHERE run.status = 'running'
            AND run.locked_by = $1::text
            AND run.locked_until > now()
    ) AS running
    WHERE worker.name = $1::text
        AND worker.claiming_tick = $2::text
        AND worker.claiming_until > now()
),
-- Of a definition that limits how many of its runs go at once, only runs within the limit. Its row is
-- locked before this statement began, so that nobody else counts at the same time.
limited AS MATERIALIZED (
    SELECT
        definition.id,
        least(definition.max_running, CASE WHEN definition.overlap = 'queue' THEN 1 END) AS most
    FROM jobctl.job_definitions AS definition
    WHERE definition.max_running IS NOT NULL
        OR definition.overlap = 'queue'
),
within_limits AS MATERIALIZED (
    SELECT waiting.id
    FROM limited
    CROSS JOIN LATERAL (
        SELECT run.id
        FROM jobctl.job_runs AS run
        WHERE run.status IN ('queued', 'failed')
            AND run.definition_id = limited.id
            AND run.run_at <= now()
            AND (cardinality($7::text[]) = 0 OR run.queue = ANY ($7::text[]))
        ORDER BY run.priority, run.run_at, run.id
        LIMIT greatest(0, limited.most - (
            SELECT count(*)
            FROM jobctl.job_runs AS run
            WHERE run.status = 'running'
                AND run.definition_id = limited.id
        ))
    ) AS waiting
    WHERE limited.id = ANY ($11::bigint[])
),
left_out AS MATERIALIZED (
    SELECT $8::text[] || ARRAY(
        SELECT definition.name
        FROM jobctl.job_definitions AS definition
        WHERE definition.kind = ANY ($10::text[])
    ) AS job_types
),
due AS MATERIALIZED (
    SELECT waiting.id
    FROM (
        SELECT lanes.queue, lanes.priority
        FROM lanes
        CROSS JOIN LATERAL (
            SELECT run.run_at
            FROM jobctl.job_runs AS run
            WHERE run.status IN ('queued', 'failed')
                AND run.queue = lanes.queue
                AND run.priority = lanes.priority
                AND run.run_at <= now()
            ORDER BY run.run_at
            LIMIT 1
        ) AS head
        WHERE cardinality($7::text[]) = 0 OR lanes.queue = ANY ($7::text[])
        ORDER BY lanes.priority, head.run_at
    ) AS lane
    CROSS JOIN LATERAL (
        SELECT run.id
        FROM jobctl.job_runs AS run
        WHERE run.status IN ('queued', 'failed')
            AND run.queue = lane.queue
            AND run.priority = lane.priority
            AND run.run_at <= now()
            -- `coalesce` keeps the planner from guessing: where most runs are of one job, it would take the
            -- comparison for one that hardly any run passes, and read and sort the whole lane.
            AND NOT coalesce(run.job_type = ANY ((SELECT left_out.job_types FROM left_out)::text[]), false)
            AND (
                run.definition_id IS NULL
                OR run.definition_id NOT IN (SELECT limited.id FROM limited)
                OR run.id IN (SELECT within_limits.id FROM within_limits)
            )
        ORDER BY run.run_at, run.id
        -- More than the outer limit needs, but without it the planner would sort whole lanes.
        LIMIT $5::integer
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS waiting
    LIMIT coalesce((SELECT room.runs FROM room), 0)
),
claimed AS (
    UPDATE jobctl.job_runs AS run
    SET
        status = 'running',
        attempts = run.attempts + 1,
        locked_by = $1::text,
        locked_until = now() + make_interval(secs => $6::float8),
        started_at = now(),
        updated_at = now()
    FROM due
    WHERE run.id = due.id
        AND run.status IN ('queued', 'failed')
    RETURNING run.*
),
given_back AS (
    UPDATE jobctl.job_workers AS worker
    SET
        claiming_tick = NULL,
        claiming_until = NULL
    WHERE worker.name = $1::text
        AND worker.claiming_tick = $2::text
        AND $9::boolean
        AND (SELECT count(*) FROM claimed) < $5::integer
)
SELECT
    claimed.id,
    claimed.job_type,
    claimed.payload::text AS payload,
    claimed.attempts,
    claimed.max_attempts,
    definition.kind,
    definition.action::text AS action,
    extract(epoch FROM coalesce(claimed.timeout, definition.timeout))::float8 AS timeout,
    claimed.backoff,
    claimed.idempotency_key,
    to_char(claimed.scheduled_for AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS scheduled_for
FROM claimed
LEFT JOIN jobctl.job_definitions AS definition
    ON definition.name = claimed.job_type
ORDER BY claimed.priority, claimed.run_at, claimed.id
