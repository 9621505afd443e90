-- Reads a run, and the facts that decide when it starts: its definition, its limits and holds, the
-- runs for which it waits, the due runs that come first, and when a worker last looked for runs.
-- $1  id    $2  tick_age: seconds after its last tick until a worker is silent
-- Zero rows: no such run.
WITH workers AS (
    SELECT
        worker.worker,
        worker.queues,
        seen.is_held,
        seen.seen_at AS ticked_at
    FROM jobctl.job_workers AS worker
    JOIN jobctl.seen_workers AS seen ON seen.worker = worker.worker
),
-- The jobs of which no run can start now, because of limits or holds.
full_jobs AS MATERIALIZED (
    SELECT definition.name
    FROM jobctl.job_definitions AS definition
    WHERE definition.is_limited
        AND (
            -- The starts so far use up the time until rate_next_at. The rate allows no start before
            -- the last `most_at_once - 1` intervals of this time.
            definition.rate_next_at - (definition.most_at_once - 1) * definition.rate_interval
                > now()
            OR definition.most_running <= (
                SELECT count(*)
                FROM jobctl.job_runs AS run
                WHERE run.status = 'running'
                    AND run.job_type = definition.name
            )
            OR definition.lock_name IN (
                SELECT running.lock
                FROM jobctl.running_locks AS running
                WHERE running.runs >= running.most
            )
        )
    UNION ALL
    SELECT hold.name
    FROM jobctl.current_holds AS hold
    WHERE hold.scope = 'job'
),
-- The runs for which the run waits or waited.
predecessors AS MATERIALIZED (
    SELECT
        dependency.after_id AS id,
        dependency.rule,
        present.status,
        dependency.state <> 'met' AND NOT judged.is_released AS is_unmet,
        judged.is_released
    FROM jobctl.job_dependencies AS dependency
    LEFT JOIN jobctl.job_runs AS predecessor ON predecessor.id = dependency.after_id
    CROSS JOIN LATERAL (SELECT coalesce(predecessor.status, 'deleted') AS status) AS present
    -- is_released: the predecessor has ended as the rule asks, and the next tick will record that.
    CROSS JOIN LATERAL (
        SELECT
            dependency.state = 'due'
            AND (
                present.status = 'succeeded'
                OR dependency.rule = 'any_end'
                AND present.status IN ('dead', 'cancelled', 'deleted')
            ) AS is_released
    ) AS judged
    WHERE dependency.run_id = $1::bigint
),
-- The run, and the runs for which it waits or waited, directly or through other runs: at most
-- 10,000 runs.
chain AS MATERIALIZED (
    SELECT known.id
    FROM (
        WITH RECURSIVE awaited (id) AS (
            SELECT $1::bigint
            UNION
            SELECT dependency.after_id
            FROM awaited
            JOIN jobctl.job_dependencies AS dependency ON dependency.run_id = awaited.id
        )
        SELECT awaited.id
        FROM awaited
        LIMIT 10000
    ) AS known
)
SELECT
    run.id,
    run.job_type,
    run.queue,
    run.priority,
    run.run_at,
    run.status,
    run.attempts,
    run.max_attempts + run.uncounted_attempts AS max_attempts,
    extract(epoch FROM coalesce(run.timeout, definition.timeout))::float8 AS timeout_seconds,
    run.backoff,
    run.idempotency_key,
    run.key_scope,
    run.scheduled_for,
    run.schedule,
    run.expires_at,
    run.share,
    substr(run.traceparent, 4, 32) AS trace_id,
    effective.lock,
    run.worker AS only_worker,
    run.locked_by,
    lease.locked_until,
    run.cancel_requested_at,
    right(run.live_output, 8192) AS live_output,
    run.last_error,
    run.error_type,
    run.failed_at,
    run.started_at,
    run.finished_at,
    run.settled_at,
    run.enqueued_by,
    run.created_at,
    run.updated_at,
    hold.held_at,
    hold.held_until,
    hold.held_by,
    hold.reason AS hold_reason,
    after.runs AS after,
    after.rule AS after_rule,
    ARRAY(
        SELECT dependency.run_id
        FROM jobctl.job_dependencies AS dependency
        WHERE dependency.after_id = run.id
        ORDER BY dependency.run_id
    ) AS followers,
    CASE
        WHEN run.status = 'running'
            THEN run.started_at + (
                SELECT make_interval(secs => usual.median_seconds)
                FROM jobctl.usual_run_time(run.job_type) AS usual
            )
    END AS usual_end_at,
    -- The runs at the begin of the chain, which wait for no run, without direct predecessors.
    ARRAY(
        SELECT chain.id
        FROM chain
        WHERE chain.id <> run.id
            AND chain.id <> ALL (after.runs)
            AND NOT EXISTS (
                SELECT FROM jobctl.job_dependencies AS dependency
                WHERE dependency.run_id = chain.id
            )
        ORDER BY chain.id
    ) AS roots,
    -- The columns above `now` are the fields of `show`.
    now() AS now,
    coalesce(definition.schedule IS NOT NULL AND NOT definition.enabled, false) AS disabled,
    CASE WHEN definition.schedule IS NOT NULL THEN definition.paused_at END AS paused_at,
    hold.held_worker,
    definition.most_running,
    definition.max_running_per_share,
    jobctl.most_with_lock(effective.lock) AS lock_most,
    (
        SELECT running.runs
        FROM jobctl.running_locks AS running
        WHERE running.lock = effective.lock
    ) AS running_of_lock,
    definition.rate,
    definition.rate_per_share,
    -- When the rate allows the next start. A later time than `least` allows was written while the
    -- database's clock was ahead. The next tick corrects it.
    CASE
        WHEN definition.rate_next_at IS NOT NULL
            THEN least(
                definition.rate_next_at - (definition.most_at_once - 1) * definition.rate_interval,
                now() + definition.rate_interval
            )
    END AS allowed_at,
    -- When the rate of the share allows the next start. Another next_at is over, or was written
    -- while the database's clock was ahead.
    CASE
        WHEN used.next_at BETWEEN now()
            AND now() + definition.most_at_once_per_share * definition.share_interval
            THEN used.next_at
                - (definition.most_at_once_per_share - 1) * definition.share_interval
    END AS share_allowed_at,
    -- The running run whose live key this run took.
    (
        SELECT max(replaced.id)
        FROM jobctl.job_runs AS replaced
        WHERE replaced.status = 'running'
            AND replaced.key_scope = 'replaced'
            AND replaced.idempotency_key = run.idempotency_key
    ) AS replaced_run,
    -- The run that took the live key of this run.
    (
        SELECT newer.id
        FROM jobctl.job_runs AS newer
        WHERE newer.idempotency_key = run.idempotency_key
            AND newer.key_scope = 'live'
            AND newer.status IN ('blocked', 'queued', 'running', 'failed')
            AND run.key_scope = 'replaced'
    ) AS replaced_by,
    (
        SELECT count(*)
        FROM jobctl.job_runs AS sibling
        WHERE sibling.status = 'running'
            AND sibling.job_type = run.job_type
    ) AS running,
    (
        SELECT count(*)
        FROM jobctl.job_runs AS sibling
        WHERE sibling.status = 'running'
            AND sibling.job_type = run.job_type
            AND sibling.share IS NOT DISTINCT FROM run.share
    ) AS running_of_share,
    -- The due runs of the queue that come first and can start. Reads at most a thousand earlier
    -- runs. If there are as many, there may be more, so returns 1000 even if some can't start.
    (
        SELECT CASE
            WHEN count(*) = 1000 THEN 1000
            ELSE count(*) FILTER (
                WHERE earlier.job_type = run.job_type
                    OR earlier.job_type <> ALL (ARRAY(SELECT full_jobs.name FROM full_jobs))
            )
        END
        FROM (
            SELECT other.job_type
            FROM jobctl.pending_runs AS other
            WHERE other.is_due
                AND other.queue = run.queue
                AND (other.priority, other.run_at, other.id) < (run.priority, run.run_at, run.id)
            LIMIT 1000
        ) AS earlier
    ) AS ahead,
    -- The average time between two ends of runs of its queue: of the last thousand ends within 10
    -- minutes. Cancelled runs do not count, because they may not have started.
    (
        SELECT
            CASE
                WHEN count(*) = 1000 THEN extract(epoch FROM now() - min(lately.finished_at))
                ELSE 600
            END::float8 / nullif(count(*), 0)
        FROM (
            SELECT ended.finished_at
            FROM jobctl.job_runs AS ended
            WHERE ended.finished_at > now() - interval '10 minutes'
                AND ended.queue = run.queue
                AND ended.status <> 'cancelled'
                -- Only for a due run, because only it waits for other runs of the queue.
                AND EXISTS (
                    SELECT FROM jobctl.pending_runs AS pending
                    WHERE pending.id = run.id
                        AND pending.is_due
                )
            ORDER BY ended.finished_at DESC
            LIMIT 1000
        ) AS lately
    ) AS seconds_a_run,
    serving.served_at,
    cardinality(after.runs) AS predecessors,
    after.unmet,
    after.unmet_statuses,
    after.first_unmet,
    stuck.id AS stuck_on,
    stuck.status AS stuck_status,
    after.is_released,
    coalesce(lease.has_result, false) AS has_result,
    locker.of_run AS locker,
    locker.of_definition AS definition_locker
FROM jobctl.job_runs AS run
LEFT JOIN jobctl.leases AS lease ON lease.id = run.id
LEFT JOIN jobctl.job_definitions AS definition
    ON definition.name = run.job_type
CROSS JOIN LATERAL (SELECT coalesce(definition.lock_name, run.lock) AS lock) AS effective
LEFT JOIN jobctl.job_share_rates AS used
    ON used.definition_id = definition.id
    AND used.share = coalesce(run.share, '')
-- The server process whose transaction has locked the row: xmax of the row is its transaction. If
-- several transactions share the lock, xmax names all of them at once, and they stay unknown.
CROSS JOIN LATERAL (
    SELECT
        min(lock.pid) FILTER (WHERE lock.transactionid = run.xmax) AS of_run,
        min(lock.pid)
            FILTER (WHERE lock.transactionid = definition.xmax AND definition.is_limited)
            AS of_definition
    FROM pg_catalog.pg_locks AS lock
    WHERE lock.locktype = 'transactionid'
        AND lock.granted
        AND lock.pid <> pg_backend_pid()
) AS locker
-- When a worker that is not held last ticked for the queue, and the held workers of the queue.
CROSS JOIN LATERAL (
    SELECT
        max(workers.ticked_at) FILTER (WHERE NOT workers.is_held) AS served_at,
        array_agg(workers.worker) FILTER (WHERE workers.is_held) AS held_workers
    FROM workers
    WHERE (cardinality(workers.queues) = 0 OR run.queue = ANY (workers.queues))
        AND coalesce(workers.worker = run.worker, true)
) AS serving
-- One row for all predecessors.
CROSS JOIN LATERAL (
    SELECT
        coalesce(array_agg(predecessor.id ORDER BY predecessor.id), '{}') AS runs,
        string_agg(DISTINCT predecessor.rule, ', ') AS rule,
        count(*) FILTER (WHERE predecessor.is_unmet) AS unmet,
        min(predecessor.id) FILTER (WHERE predecessor.is_unmet) AS first_unmet,
        coalesce(bool_or(predecessor.is_released), false) AS is_released,
        -- Such as: 2 running, 1 dead
        (
            SELECT
                string_agg(counted.runs || ' ' || counted.status, ', ' ORDER BY counted.runs DESC)
            FROM (
                SELECT unmet.status, count(*) AS runs
                FROM predecessors AS unmet
                WHERE unmet.is_unmet
                GROUP BY unmet.status
            ) AS counted
        ) AS unmet_statuses
    FROM predecessors AS predecessor
) AS after
-- The dead, cancelled or deleted run because of which the run stays blocked, if there is one.
LEFT JOIN LATERAL jobctl.stuck_predecessor(ARRAY[run.id]) AS stuck ON run.status = 'blocked'
-- The hold that lasts longest of those that keep the run from starting.
LEFT JOIN LATERAL (
    SELECT
        hold.held_at,
        hold.held_until,
        coalesce(hold.host_user, hold.recorded_by) AS held_by,
        CASE WHEN hold.scope = 'worker' THEN hold.name END AS held_worker,
        hold.reason
    FROM jobctl.current_holds AS hold
    WHERE (hold.scope, hold.name) IN (('all', ''), ('queue', run.queue), ('job', run.job_type))
        -- A hold of a worker counts only if no other worker serves the queue.
        OR (
            hold.scope = 'worker'
            AND hold.name = ANY (serving.held_workers)
            AND coalesce(serving.served_at < now() - make_interval(secs => $2::float8), true)
        )
    ORDER BY hold.scope = 'worker', hold.held_until DESC NULLS FIRST, hold.held_at
    LIMIT 1
) AS hold ON run.status IN ('queued', 'failed')
WHERE run.id = $1::bigint
