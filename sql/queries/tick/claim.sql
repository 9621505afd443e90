-- queued or failed, and due -> running: claims up to n runs, each with a lease, for the tick that
-- has its worker's claim right. A claim of only one run needs no right, so that `tick --run` never
-- waits for another tick.
-- $1  worker    $2  tick    $3  at_most, n    $4  lease, seconds    $5  queues, empty for all
-- $6  excluded_jobs    $7  excluded_kinds of definitions    $8  excluded_runs
-- The lanes and the runs after which to continue; NULL for a full scan:
-- $9  after_queues    $10 after_priorities    $11 after_run_at    $12 after_ids
-- $13 bytes of payload; the run that exceeds them is the last
-- $14 free_threads: how many of the n can start at once. After these, the claim ends before a last
--     attempt: if the worker crashed before the start, the run would be dead without having started
-- $15 lane_queue    $16 lane_priority: full scan of the lanes after this lane; NULL starts at the
--     first lane
-- The runs of limited definitions that may be claimed, see within_limits.sql:
-- $17 limited_ids    $18 are_last_attempts    $19 payload_bytes
-- and their places in the order of all jobs, see within_limits.sql:
-- $20 place_priorities    $21 place_queues    $22 place_run_at    $23 place_ids
-- $24 only_run: NULL for any
-- A row per run, or one row without a run: nothing is due, all slots are taken, or another tick
-- holds the claim right. Each row names the last lane that this claim looked at, if there may be
-- more lanes, and says whether a trigger made the UPDATE skip a run.
--
-- Order: smaller priority first, then run_at. A lane is a queue and a priority. The claim reads the
-- index job_runs_waiting lane by lane and finds each lane by one probe from the lane before. So it
-- reads neither runs of the future nor other queues. Lanes of one priority are ordered by their
-- oldest run.
--
-- A claim looks at a thousand lanes at most, which takes some milliseconds. The next claim
-- continues after them. So all lanes have their turn, but priorities order only runs within the
-- same thousand lanes.
--
-- Runs of limited definitions are found by id, so only a full scan reads over them.
--
-- While any session holds an old snapshot, claimed runs stay in the index, and each scan from a
-- lane's beginning is longer than the one before. A tick that notices this continues after the last
-- claimed run, and does a full scan only now and then.
--
-- SKIP LOCKED: other hosts claim at the same time, and no claim waits for another. NO KEY UPDATE:
-- an application's foreign key to a run may be checked meanwhile. MATERIALIZED: otherwise the
-- planner may run the subquery once per candidate row of the UPDATE, and LIMIT 1 can claim fifty.
WITH RECURSIVE lanes AS (
    -- The last lane of the previous claim, or a sentinel that sorts before every lane.
    SELECT
        0 AS place,
        coalesce($15::text, '') AS queue,
        coalesce($16::integer, -2147483648) AS priority,
        timestamptz 'infinity' AS oldest
    WHERE $9::text[] IS NULL
    UNION ALL
    SELECT lanes.place + 1, following.queue, following.priority, following.run_at
    FROM lanes
    CROSS JOIN LATERAL (
        SELECT run.queue, run.priority, run.run_at
        FROM jobctl.job_runs AS run
        WHERE run.status IN ('queued', 'failed')
            AND (run.queue, run.priority) > (
                lanes.queue,
                -- Each excluded queue costs one probe.
                CASE
                    WHEN cardinality($5::text[]) = 0
                        OR lanes.queue = ANY ($5::text[])
                        OR lanes.place = 0
                        THEN lanes.priority
                    ELSE 2147483647
                END
            )
        ORDER BY run.queue, run.priority, run.run_at
        LIMIT 1
    ) AS following
    WHERE lanes.place < 1000
),
starts AS (
    SELECT
        lanes.queue,
        lanes.priority,
        lanes.oldest,
        timestamptz '-infinity' AS run_at,
        0::bigint AS id
    FROM lanes
    WHERE lanes.oldest <= now()
    UNION ALL
    SELECT after.queue, after.priority, after.run_at, after.run_at, after.id
    FROM unnest($9::text[], $10::integer[], $11::timestamptz[], $12::bigint[])
        AS after (queue, priority, run_at, id)
),
held AS MATERIALIZED (
    SELECT hold.scope, hold.name
    FROM jobctl.current_holds AS hold
),
claim_right AS MATERIALIZED (
    SELECT
    WHERE (
            $24::bigint IS NOT NULL
            OR EXISTS (
                SELECT FROM jobctl.job_workers AS worker
                WHERE worker.worker = $1::text
                    AND worker.claiming_tick = $2::text
                    AND worker.claiming_until > now()
            )
        )
        AND NOT EXISTS (
            SELECT FROM held
            WHERE (held.scope, held.name) IN (('all', ''), ('worker', $1::text))
        )
),
left_out AS MATERIALIZED (
    SELECT unnest($6::text[]) AS job_type
    UNION ALL
    SELECT definition.name
    FROM jobctl.job_definitions AS definition
    WHERE definition.is_limited OR definition.kind = ANY ($7::text[])
    UNION ALL
    SELECT held.name
    FROM held
    WHERE held.scope = 'job'
),
replaced AS MATERIALIZED (
    SELECT run.idempotency_key
    FROM jobctl.job_runs AS run
    WHERE run.status = 'running' AND run.key_scope = 'replaced'
),
free AS MATERIALIZED (
    SELECT
        waiting.id,
        waiting.is_last_attempt,
        waiting.size,
        lane.priority,
        lane.oldest,
        lane.queue,
        waiting.run_at,
        waiting.id AS place_of
    FROM (
        SELECT *
        FROM starts
        WHERE (cardinality($5::text[]) = 0 OR starts.queue = ANY ($5::text[]))
            AND starts.queue <> ALL (ARRAY(
                SELECT held.name
                FROM held
                WHERE held.scope = 'queue'
            ))
        ORDER BY starts.priority, starts.oldest
    ) AS lane
    CROSS JOIN LATERAL (
        SELECT
            run.id,
            run.run_at,
            run.attempts + 1 >= run.max_attempts + run.uncounted_attempts AS is_last_attempt,
            run.payload_bytes AS size
        FROM jobctl.job_runs AS run
        WHERE run.status IN ('queued', 'failed')
            AND run.queue = lane.queue
            AND run.priority = lane.priority
            AND (run.run_at, run.id) > (lane.run_at, lane.id)
            AND run.run_at <= now()
            AND coalesce(run.expires_at > now(), true)
            AND run.id <> ALL ($8::bigint[])
            AND ($24::bigint IS NULL OR run.id = $24::bigint)
            -- `coalesce` hides the comparison from the planner. If most runs are of one job, it
            -- would expect that hardly any run passes, and read and sort the whole lane. Each list
            -- is read once, into a hash table.
            AND NOT coalesce(run.job_type IN (SELECT left_out.job_type FROM left_out), false)
            AND NOT coalesce(
                run.idempotency_key IN (SELECT replaced.idempotency_key FROM replaced),
                false
            )
        ORDER BY run.run_at, run.id
        -- More than the outer limit needs, but without it the planner would sort whole lanes.
        LIMIT $3::integer
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS waiting
    LIMIT CASE WHEN EXISTS (SELECT FROM claim_right) THEN $3::integer ELSE 0 END
),
within_limits AS (
    SELECT
        chosen.id,
        chosen.is_last_attempt,
        chosen.size,
        chosen.priority,
        chosen.run_at AS oldest,
        chosen.queue,
        chosen.run_at,
        chosen.place_of
    -- within_limits.sql locked these runs, so they are still due.
    FROM unnest(
        $17::bigint[],
        $18::boolean[],
        $19::integer[],
        $20::integer[],
        $21::text[],
        $22::timestamptz[],
        $23::bigint[]
    ) AS chosen (id, is_last_attempt, size, priority, queue, run_at, place_of)
    WHERE EXISTS (SELECT FROM claim_right)
),
due AS MATERIALIZED (
    SELECT placed.id
    FROM (
        SELECT
            first.id,
            first.size_before,
            bool_or(first.is_last_attempt AND first.place > $14::integer)
                OVER (ORDER BY first.place) AS must_wait
        FROM (
            SELECT
                candidate.id,
                candidate.is_last_attempt,
                row_number() OVER in_order AS place,
                sum(candidate.size)
                    OVER (in_order ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS size_before
            FROM (
                SELECT *
                FROM free
                UNION ALL
                SELECT *
                FROM within_limits
            ) AS candidate
            WINDOW in_order AS (
                ORDER BY
                    candidate.priority,
                    candidate.oldest,
                    candidate.queue,
                    candidate.run_at,
                    candidate.place_of
            )
        ) AS first
        WHERE first.place <= $3::integer
    ) AS placed
    WHERE coalesce(placed.size_before, 0) < $13::bigint
        AND NOT placed.must_wait
),
claimed AS (
    UPDATE jobctl.job_runs AS run
    SET
        status = 'running',
        attempts = run.attempts + 1,
        locked_by = $1::text,
        locked_until = now() + make_interval(secs => $4::float8),
        started_at = now(),
        updated_at = now()
    -- The rows are locked, so the id is enough. An array forces the index, where a join might read
    -- the table.
    WHERE run.id = ANY (ARRAY(SELECT due.id FROM due))
    RETURNING
        run.id,
        run.job_type,
        run.queue,
        run.priority,
        run.run_at,
        run.payload,
        run.attempts,
        run.max_attempts + run.uncounted_attempts AS max_attempts,
        run.uncounted_attempts,
        run.started_at,
        run.cancel_requested_at,
        run.timeout,
        run.backoff,
        run.idempotency_key,
        run.key_scope,
        run.scheduled_for,
        run.expires_at
)
SELECT
    cut.queue AS cut_queue,
    cut.priority AS cut_priority,
    (SELECT count(*) FROM due) > (SELECT count(*) FROM claimed) AS skips_runs,
    claimed.id,
    claimed.job_type,
    claimed.queue,
    claimed.priority,
    claimed.run_at,
    claimed.payload::text AS payload,
    claimed.attempts AS attempt,
    claimed.max_attempts,
    claimed.uncounted_attempts,
    claimed.started_at AS claimed_at,
    claimed.cancel_requested_at IS NOT NULL AS cancel_asked,
    extract(epoch FROM claimed.expires_at - now())::float8 AS expires_in,
    definition.kind,
    -- Once per job, which may have thousands of runs.
    CASE
        WHEN definition.id IS NOT NULL
            AND claimed.id = ANY (ARRAY(
                SELECT min(first.id)
                FROM claimed AS first
                GROUP BY first.job_type
            ))
            THEN definition.action::text
    END AS action,
    extract(epoch FROM coalesce(claimed.timeout, definition.timeout))::float8 AS timeout,
    claimed.backoff,
    -- Several runs use a live key one after the other, and their effects differ.
    CASE WHEN claimed.key_scope = 'retained' THEN claimed.idempotency_key END AS key,
    to_char(claimed.scheduled_for AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
        AS scheduled_for,
    (
        SELECT string_agg(waits.after_id::text, ',' ORDER BY waits.after_id)
        FROM jobctl.job_dependencies AS waits
        WHERE waits.run_id = claimed.id
    ) AS after,
    -- The claim does not read them: that may take longer than other runs may wait, see results.sql.
    coalesce(definition.pass_result, false)
        AND EXISTS (
            SELECT FROM jobctl.job_dependencies AS waits
            WHERE waits.run_id = claimed.id
        ) AS passes_results
FROM (
    SELECT max(lanes.queue) AS queue, max(lanes.priority) AS priority
    FROM lanes
    WHERE lanes.place = 1000
) AS cut
LEFT JOIN claimed ON true
LEFT JOIN jobctl.job_definitions AS definition
    ON definition.name = claimed.job_type
ORDER BY claimed.priority, claimed.run_at, claimed.id
