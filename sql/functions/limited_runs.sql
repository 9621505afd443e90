-- Returns the due runs that limits and locks let start now, for claim_runs: runs of limited
-- definitions, and runs with a lock of their own. A definition is limited (is_limited) if it has a
-- lock, or limits how many of its runs may run at once or start in a time, in all or per share.
-- Internal: only jobctl calls it.
--
-- Steps:
--   1. Locks the limited definitions that seem to have due runs, until the end of the transaction,
--      so that no other claim counts their running runs at the same time. Skips definitions that
--      another claim has locked.
--   2. Counts their running runs with a later snapshot, and locks the runs that may start. Skips
--      runs that another session has locked.
--   3. Locks the runs with a lock of their own that may start.
--   4. within_locks leaves out the runs whose lock is taken, also the locks of definitions.
--
-- Turns: the shares of a definition take turns, one run a turn, in the order of their names. The
-- first is the share after the one that was claimed last. Each run gets a place in the order of the
-- runs of all jobs: the first run in turn gets the place of the definition's oldest run, the second
-- one that of the second oldest run. So turns change the order within a job, but not when the job
-- gets its turn.
--
-- Groups: a group is a share, a queue and a priority. The function finds each group by one probe of
-- the index job_runs_waiting_of_job from the group before (a loose index scan). It finds runs with
-- a lock of their own in the same way, by the index job_runs_waiting_for_lock, as if each lock were
-- a share of a definition with the id 0, but without turns. A lock that is taken costs one probe.
--
-- A call is limited, and the next call continues after it:
--   - 1,000 definitions that it reads, 50 that it locks
--   - 100 waiting runs of each definition, to see whether one is due; if there are more and none of
--     the 100 is due, one of the rest may be
--   - 1,000 groups of definitions, but at least 50 of each definition, and 1,000 groups of locks,
--     which takes some milliseconds
--   - 50 groups of one share or lock
--   - about 5,000 runs that it locks
--
-- Parameters:
--   at_most              how many runs the claim may take
--   after_definition     read definitions with a larger id; NULL: none, only runs with a lock of
--                        their own
--   after_definitions    last_definitions of the call before,
--   after_shares         and its last_shares
--
-- Returns arrays, one element a run, in the order of turns. `place_priorities`, `place_queues`,
-- `place_run_at` and `place_ids` are the places of the runs. Also returns
--   skipped_job         the first name of a definition that another session has locked, or the job
--                       of a run whose lock another claim counts
--   last_definition     the last definition that this call read, if there may be more
--   last_definitions    arrays of equal length: the definitions that have more shares than this
--                       call read,
--   last_shares         and the last share that it read of each. For the definition 0, the last
--                       lock
CREATE OR REPLACE FUNCTION jobctl.limited_runs(
    worker text,
    at_most integer,
    queues text[],
    excluded_jobs text[],
    excluded_kinds text[],
    excluded_runs bigint[],
    after_definition bigint,
    after_definitions bigint[],
    after_shares text[],
    only_run bigint,
    OUT ids bigint[],
    OUT are_last_attempts boolean[],
    OUT payload_bytes integer[],
    OUT place_priorities integer[],
    OUT place_queues text[],
    OUT place_run_at timestamptz[],
    OUT place_ids bigint[],
    OUT skipped_job text,
    OUT last_definition bigint,
    OUT last_definitions bigint[],
    OUT last_shares text[]
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET row_security = off
SET plan_cache_mode = force_generic_plan
SET random_page_cost = 1.1
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    locked_ids bigint[];
    has_locks boolean;
    full_locks text[] := '{}';
    by_lock record;
    allowed record;
    rates_ahead text;
    -- The first and the last run of the scan of a group: all runs that are due now.
    first_run_at timestamptz := '-infinity';
    first_id bigint := 0;
    last_run_at timestamptz := now();
    last_id bigint := 9223372036854775807;
BEGIN
    has_locks := EXISTS (
        SELECT FROM jobctl.job_definitions AS definition
        WHERE definition.lock_name IS NOT NULL
    ) OR EXISTS (SELECT FROM jobctl.pending_lock_runs);
    IF has_locks THEN
        full_locks := ARRAY(
            SELECT running.lock
            FROM jobctl.running_locks AS running
            WHERE running.runs >= running.most
        );
    END IF;
    -- Step 1.
    WITH looked_at AS MATERIALIZED (
        SELECT definition.*
        FROM jobctl.job_definitions AS definition
        WHERE definition.is_limited AND definition.id > after_definition
            AND (
                only_run IS NULL
                OR definition.name = (
                    SELECT run.job_type
                    FROM jobctl.job_runs AS run
                    WHERE run.id = only_run
                )
            )
        ORDER BY definition.id
        LIMIT 1000
    ),
    with_due_runs AS MATERIALIZED (
        SELECT definition.id, definition.name
        FROM looked_at AS definition
        WHERE definition.name <> ALL (excluded_jobs)
            AND definition.kind <> ALL (excluded_kinds)
            AND coalesce(definition.lock_name <> ALL (full_locks), true)
            -- Leave out definitions whose rate allows no start now, before they cost a lock and a
            -- count. A rate allows the next start `most_at_once - 1` intervals before rate_next_at:
            -- at most one rate_interval from now. A time more than a minute later was written while
            -- the database's clock was ahead, see is_ahead.
            AND coalesce(
                definition.rate_next_at - (definition.most_at_once - 1) * definition.rate_interval
                    NOT BETWEEN now() AND now() + definition.rate_interval + interval '1 minute',
                true
            )
            AND EXISTS (
                SELECT FROM (
                    SELECT
                        run.run_at <= now()
                        AND (cardinality(queues) = 0 OR run.queue = ANY (queues)) AS is_due,
                        row_number() OVER () AS place
                    FROM jobctl.job_runs AS run
                    WHERE run.job_type = definition.name
                        -- Here and below, a condition of the index job_runs_waiting_of_job.
                        AND run.job_type NOT IN ('shell', 'http')
                        AND run.status IN ('queued', 'failed')
                    LIMIT 100
                ) AS first
                -- If there are 100 runs, there may be more, and one of the others may be due.
                WHERE first.is_due OR first.place = 100
            )
        ORDER BY definition.id
        LIMIT 50
    ),
    locked AS MATERIALIZED (
        SELECT
            definition.id,
            -- The time of the next start, computed as above, is more than a minute later than the
            -- rate allows: the database's clock was ahead when rate_next_at was written.
            definition.rate_next_at - (definition.most_at_once - 1) * definition.rate_interval
                > now() + definition.rate_interval + interval '1 minute' AS is_ahead
        FROM jobctl.job_definitions AS definition
        WHERE definition.id = ANY (ARRAY(SELECT with_due_runs.id FROM with_due_runs))
        FOR NO KEY UPDATE SKIP LOCKED
    ),
    -- Rates that are ahead begin again, as if no run had started. Otherwise, none of their runs
    -- could start before the wrong time.
    restarted AS (
        UPDATE jobctl.job_definitions AS definition
        SET rate_next_at = NULL
        WHERE definition.id = ANY (ARRAY(SELECT locked.id FROM locked WHERE locked.is_ahead))
        RETURNING definition.name
    )
    SELECT
        array_agg(locked.id) FILTER (WHERE locked.id IS NOT NULL) AS locked_ids,
        min(with_due_runs.name) FILTER (WHERE locked.id IS NULL) AS skipped_job,
        (
            SELECT string_agg(restarted.name, ', ' ORDER BY restarted.name)
            FROM restarted
        ) AS rates_ahead,
        -- There may be more definitions only if a limit of this call ended the list.
        CASE
            WHEN (SELECT count(*) FROM with_due_runs) = 50 THEN (SELECT max(id) FROM with_due_runs)
            WHEN (SELECT count(*) FROM looked_at) = 1000 THEN (SELECT max(id) FROM looked_at)
        END AS last_definition
    INTO locked_ids, skipped_job, rates_ahead, last_definition
    FROM with_due_runs
    LEFT JOIN locked ON locked.id = with_due_runs.id;
    IF rates_ahead IS NOT NULL THEN
        RAISE WARNING 'jobctl: the rates of these jobs begin again, because the database''s clock '
            'was ahead: %', rates_ahead;
    END IF;
    IF locked_ids IS NULL AND NOT has_locks THEN
        RETURN;
    END IF;
    IF only_run IS NOT NULL THEN
        -- The scan of each group begins and ends with this run. If the run is not due yet, the scan
        -- ends at now(), so it does not find the run.
        SELECT run.run_at, run.id, least(run.run_at, now()), run.id
        INTO first_run_at, first_id, last_run_at, last_id
        FROM jobctl.job_runs AS run
        WHERE run.id = only_run;
    END IF;
    -- Step 2.
    WITH RECURSIVE holds AS MATERIALIZED (
        SELECT hold.scope, hold.name
        FROM jobctl.current_holds AS hold
    ),
    -- The locked definitions that may start runs: `most`, in all shares together.
    limits AS MATERIALIZED (
        SELECT *
        FROM (
            SELECT
                definition.id,
                definition.name,
                definition.max_running_per_share,
                definition.most_at_once_per_share,
                definition.share_interval,
                coalesce(definition.last_share, '') AS last_share,
                -- `least` ignores NULL, which means no limit.
                least(
                    at_most,
                    definition.most_running - (
                        SELECT count(*)
                        FROM jobctl.job_runs AS run
                        WHERE run.status = 'running'
                            AND run.job_type = definition.name
                    ),
                    -- The starts that the rate allows now, by the generic cell rate algorithm
                    -- (ITU-T I.371).
                    definition.most_at_once
                    - ceil(
                        extract(epoch FROM greatest(definition.rate_next_at - now(), interval '0'))
                        / extract(epoch FROM definition.rate_interval)
                    )
                )::integer AS most
            FROM jobctl.job_definitions AS definition
            WHERE definition.id = ANY (locked_ids)
                AND NOT EXISTS (
                    SELECT FROM holds
                    WHERE holds.scope = 'job' AND holds.name = definition.name
                )
        ) AS definition
        WHERE definition.most > 0
    ),
    -- How many groups to read of each definition: 1,000 of all, but at least 50.
    bounds AS MATERIALIZED (
        SELECT greatest(50, 1000 / greatest(count(*), 1)) AS most_groups
        FROM limits
    ),
    -- The groups of each definition, in the order of turns: the first part are the shares after
    -- last_share, the second part the shares up to last_share.
    groups AS (
        -- The row before the first group of a definition. It is never due, because `oldest` is
        -- infinity. Its place_in_share is the limit of 50, so the first probe skips the rest of
        -- this share: the last one that the call before read, or else the share that was claimed
        -- last.
        SELECT
            limits.id,
            limits.name,
            limits.last_share,
            coalesce(after.share, limits.last_share) AS share,
            '' AS queue,
            0 AS priority,
            timestamptz 'infinity' AS oldest,
            coalesce(after.share <= limits.last_share, false) AS is_second_part,
            0 AS place,
            50 AS place_in_share
        FROM limits
        LEFT JOIN unnest(after_definitions, after_shares) AS after (id, share)
            ON after.id = limits.id
        UNION ALL
        -- The next group. After the last group of the first part, next_group is NULL. Then this is
        -- the row before the first group of the second part: an empty share and queue and the
        -- smallest priority sort before every group. This row does not count as a group.
        SELECT
            groups.id,
            groups.name,
            groups.last_share,
            coalesce(next_group.share, ''),
            coalesce(next_group.queue, ''),
            coalesce(next_group.priority, -2147483648),
            coalesce(next_group.run_at, 'infinity'),
            groups.is_second_part OR next_group.share IS NULL,
            groups.place + (next_group.share IS NOT NULL)::integer,
            CASE
                WHEN next_group.share IS NULL THEN 0
                WHEN next_group.share = groups.share THEN groups.place_in_share + 1
                ELSE 1
            END
        FROM groups
        LEFT JOIN LATERAL (
            SELECT
                coalesce(run.share, '') AS share,
                run.queue,
                run.priority,
                run.run_at
            FROM jobctl.job_runs AS run
            WHERE run.status IN ('queued', 'failed')
                AND run.job_type = groups.name
                AND run.job_type NOT IN ('shell', 'http')
                AND (coalesce(run.share, ''), run.queue, run.priority) > (
                    -- After 50 groups of a share, skip the rest: no share has a control character,
                    -- so this text sorts after all groups of the share, and before the next one.
                    groups.share || CASE WHEN groups.place_in_share < 50 THEN '' ELSE E'\x01' END,
                    groups.queue,
                    -- Skip the other priorities of a queue that this tick does not serve. The queue
                    -- is empty in the rows before the groups.
                    CASE
                        WHEN groups.queue = ''
                            OR cardinality(queues) = 0
                            OR groups.queue = ANY (queues)
                            THEN groups.priority
                        ELSE 2147483647
                    END
                )
                AND (NOT groups.is_second_part OR coalesce(run.share, '') <= groups.last_share)
            ORDER BY coalesce(run.share, ''), run.queue, run.priority, run.run_at
            LIMIT 1
        ) AS next_group ON true
        WHERE groups.place < (SELECT bounds.most_groups FROM bounds)
            AND (next_group.share IS NOT NULL OR NOT groups.is_second_part)
    ),
    -- The running runs of each share, for max_running_per_share.
    running AS MATERIALIZED (
        SELECT
            run.job_type,
            coalesce(run.share, '') AS share,
            count(*) AS runs
        FROM jobctl.job_runs AS run
        JOIN limits
            ON limits.name = run.job_type
        WHERE run.status = 'running'
            AND limits.max_running_per_share IS NOT NULL
        GROUP BY run.job_type, coalesce(run.share, '')
    ),
    due_groups AS MATERIALIZED (
        SELECT
            limits.id,
            limits.name,
            limits.last_share,
            limits.most,
            groups.share,
            groups.queue,
            groups.priority,
            -- How many runs of the share may start by its maximum and its rate; NULL: any number.
            least(
                limits.max_running_per_share - coalesce(running.runs, 0),
                limits.most_at_once_per_share - ceil(coalesce(
                    extract(epoch FROM used.next_at - now())
                    / extract(epoch FROM limits.share_interval),
                    0
                ))
            )::bigint AS most_of_share
        FROM groups
        JOIN limits
            ON limits.id = groups.id
        LEFT JOIN running
            ON running.job_type = groups.name
                AND running.share = groups.share
        -- Ignore a later time: it was written while the database's clock was ahead, or when the
        -- rate was lower.
        LEFT JOIN jobctl.job_share_rates AS used
            ON used.definition_id = groups.id
            AND used.share = groups.share
            AND used.next_at BETWEEN now()
                AND now() + limits.most_at_once_per_share * limits.share_interval
        WHERE groups.oldest <= now()
            AND (cardinality(queues) = 0 OR groups.queue = ANY (queues))
            AND NOT EXISTS (
                SELECT FROM holds
                WHERE holds.scope = 'queue' AND holds.name = groups.queue
            )
    ),
    locked AS MATERIALIZED (
        SELECT
            due.id AS definition_id,
            due.last_share,
            due.most,
            due.share,
            due.queue,
            due.priority,
            due.most_of_share,
            pending.id,
            pending.run_at,
            pending.payload_bytes,
            pending.is_last_attempt
        FROM due_groups AS due
        CROSS JOIN LATERAL (
            SELECT
                run.id,
                run.run_at,
                run.payload_bytes,
                run.attempts + 1 >= run.max_attempts + run.uncounted_attempts AS is_last_attempt
            FROM jobctl.job_runs AS run
            WHERE run.status IN ('queued', 'failed')
                AND run.job_type = due.name
                AND run.job_type NOT IN ('shell', 'http')
                AND coalesce(run.share, '') = due.share
                AND run.queue = due.queue
                AND run.priority = due.priority
                AND (run.run_at, run.id) >= (first_run_at, first_id)
                AND (run.run_at, run.id) <= (last_run_at, last_id)
                AND coalesce(run.expires_at > now(), true)
                AND coalesce(run.worker = limited_runs.worker, true)
                AND coalesce(run.lock <> ALL (full_locks), true)
                AND run.id <> ALL (excluded_runs)
                -- A run that took the key of a running run waits for the end of that run.
                AND NOT EXISTS (
                    SELECT FROM jobctl.job_runs AS replaced
                    WHERE replaced.status = 'running'
                        AND replaced.key_scope = 'replaced'
                        AND replaced.idempotency_key = run.idempotency_key
                )
            ORDER BY run.run_at, run.id
            -- Not negative: after a limit was lowered, more runs than it allows may be running.
            LIMIT greatest(
                0,
                least(
                    due.most,
                    due.most_of_share,
                    -- 5,000 runs in all, the same number for each group.
                    (SELECT 5000 / greatest(count(*), 1) + 1 FROM due_groups)
                )
            )
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS pending
    ),
    -- The turn of each run: a share has one run in each turn.
    turns AS (
        SELECT
            locked.*,
            row_number() OVER (
                PARTITION BY locked.definition_id, locked.share
                ORDER BY locked.priority, locked.run_at, locked.id
            ) AS turn
        FROM locked
    ),
    -- The order of the runs of a definition: by turns, and within a turn by shares.
    in_turn AS (
        SELECT
            turns.*,
            row_number() OVER (
                PARTITION BY turns.definition_id
                -- False sorts before true: the shares after last_share come first.
                ORDER BY turns.turn, turns.share <= turns.last_share, turns.share
            )::integer AS place
        FROM turns
        -- Without a limit of the share, most_of_share is NULL.
        WHERE coalesce(turns.turn <= turns.most_of_share, true)
    ),
    -- The first run in turn gets the place of the definition's oldest run, the second one that of
    -- the second oldest, and so on.
    placed AS (
        SELECT
            in_turn.*,
            nth_value(in_turn.priority, in_turn.place) OVER by_age AS place_priority,
            nth_value(in_turn.queue, in_turn.place) OVER by_age AS place_queue,
            nth_value(in_turn.run_at, in_turn.place) OVER by_age AS place_run_at,
            nth_value(in_turn.id, in_turn.place) OVER by_age AS place_id
        FROM in_turn
        WINDOW by_age AS (
            PARTITION BY in_turn.definition_id
            ORDER BY in_turn.priority, in_turn.run_at, in_turn.id
            ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
        )
    )
    SELECT
        array_agg(chosen.id) AS ids,
        array_agg(chosen.is_last_attempt) AS are_last_attempts,
        array_agg(chosen.payload_bytes) AS payload_bytes,
        array_agg(chosen.place_priority) AS place_priorities,
        array_agg(chosen.place_queue) AS place_queues,
        array_agg(chosen.place_run_at) AS place_run_at,
        array_agg(chosen.place_id) AS place_ids,
        -- A definition of which the call read the highest number of groups may have more.
        (
            SELECT array_agg(groups.id ORDER BY groups.id)
            FROM groups
            WHERE groups.place = (SELECT bounds.most_groups FROM bounds)
        ) AS last_definitions,
        (
            SELECT array_agg(groups.share ORDER BY groups.id)
            FROM groups
            WHERE groups.place = (SELECT bounds.most_groups FROM bounds)
        ) AS last_shares
    INTO
        ids,
        are_last_attempts,
        payload_bytes,
        place_priorities,
        place_queues,
        place_run_at,
        place_ids,
        last_definitions,
        last_shares
    FROM (
        SELECT *
        FROM placed
        WHERE placed.place <= placed.most
        ORDER BY placed.definition_id, placed.place
    ) AS chosen;
    IF NOT has_locks THEN
        RETURN;
    END IF;
    -- Step 3, the runs with a lock of their own.
    WITH RECURSIVE groups AS (
        -- The row before the first group, as above: its lock is the last one that the call before
        -- read, and it is never due.
        SELECT
            coalesce(
                (
                    SELECT after.lock
                    FROM unnest(after_definitions, after_shares) AS after (definition_id, lock)
                    WHERE after.definition_id = 0
                ),
                ''
            ) COLLATE "C" AS lock,
            '' AS queue,
            0 AS priority,
            timestamptz 'infinity' AS oldest,
            0 AS place,
            50 AS place_in_lock
        WHERE only_run IS NULL
        UNION ALL
        -- For only_run, the only group. Its place is the limit of 1,000, so no group follows it.
        SELECT
            run.lock COLLATE "C",
            run.queue,
            run.priority,
            run.run_at,
            1000 AS place,
            1 AS place_in_lock
        FROM jobctl.job_runs AS run
        WHERE run.id = only_run
            AND run.lock IS NOT NULL
        UNION ALL
        SELECT
            next_group.lock,
            next_group.queue,
            next_group.priority,
            next_group.run_at,
            groups.place + 1,
            CASE WHEN next_group.lock = groups.lock THEN groups.place_in_lock + 1 ELSE 1 END
        FROM groups
        CROSS JOIN LATERAL (
            SELECT run.lock, run.queue, run.priority, run.run_at
            FROM jobctl.pending_lock_runs AS run
            WHERE (run.lock, run.queue, run.priority) > (
                -- Skip the rest of a lock that is taken or has had 50 groups: no lock has a control
                -- character, so this text sorts after all groups of the lock.
                groups.lock || CASE
                    WHEN groups.place_in_lock < 50 AND groups.lock <> ALL (full_locks) THEN ''
                    ELSE E'\x01'
                END,
                groups.queue,
                groups.priority
            )
            ORDER BY run.lock, run.queue, run.priority, run.run_at
            LIMIT 1
        ) AS next_group
        WHERE groups.place < 1000
    ),
    -- Jobs whose runs must not start, or were found above, because their definition is limited.
    left_out AS MATERIALIZED (
        SELECT unnest(excluded_jobs) AS job_type
        UNION ALL
        SELECT definition.name
        FROM jobctl.job_definitions AS definition
        WHERE definition.is_limited OR definition.kind = ANY (excluded_kinds)
        UNION ALL
        SELECT hold.name
        FROM jobctl.current_holds AS hold
        WHERE hold.scope = 'job'
    ),
    due_groups AS MATERIALIZED (
        SELECT groups.lock, groups.queue, groups.priority
        FROM groups
        WHERE groups.oldest <= now()
            AND groups.lock <> ALL (full_locks)
            AND (cardinality(queues) = 0 OR groups.queue = ANY (queues))
            AND groups.queue <> ALL (ARRAY(
                SELECT hold.name
                FROM jobctl.current_holds AS hold
                WHERE hold.scope = 'queue'
            ))
    ),
    -- is_within: among the first runs of its lock, as many as may run with the lock.
    claimable AS MATERIALIZED (
        SELECT
            pending.id,
            pending.priority,
            pending.run_at,
            row_number() OVER (
                PARTITION BY due.lock
                ORDER BY pending.priority, pending.run_at, pending.id
            ) <= jobctl.most_with_lock(due.lock) AS is_within
        FROM due_groups AS due
        CROSS JOIN LATERAL (
            SELECT run.id, run.priority, run.run_at
            FROM jobctl.pending_lock_runs AS run
            WHERE run.lock = due.lock
                AND run.queue = due.queue
                AND run.priority = due.priority
                AND (run.run_at, run.id) >= (first_run_at, first_id)
                AND (run.run_at, run.id) <= (last_run_at, last_id)
                AND coalesce(run.expires_at > now(), true)
                AND coalesce(run.worker = limited_runs.worker, true)
                AND run.id <> ALL (excluded_runs)
                AND NOT coalesce(
                    run.job_type IN (SELECT left_out.job_type FROM left_out),
                    false
                )
                -- A run that took the key of a running run waits for the end of that run.
                AND NOT EXISTS (
                    SELECT FROM jobctl.job_runs AS replaced
                    WHERE replaced.status = 'running'
                        AND replaced.key_scope = 'replaced'
                        AND replaced.idempotency_key = run.idempotency_key
                )
            ORDER BY run.run_at, run.id
            LIMIT least(at_most, jobctl.most_with_lock(due.lock))
        ) AS pending
    ),
    -- Locks at most at_most runs of all locks together, so that other claims can take the rest.
    locked AS MATERIALIZED (
        SELECT unlocked.*
        FROM (
            SELECT claimable.id
            FROM claimable
            WHERE claimable.is_within
            ORDER BY claimable.priority, claimable.run_at, claimable.id
        ) AS chosen
        CROSS JOIN LATERAL (
            SELECT
                run.id,
                run.attempts + 1 >= run.max_attempts + run.uncounted_attempts AS is_last_attempt,
                run.payload_bytes,
                run.priority,
                run.queue,
                run.run_at
            FROM jobctl.job_runs AS run
            WHERE run.id = chosen.id
                AND run.status IN ('queued', 'failed')
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS unlocked
        LIMIT at_most
    )
    SELECT
        array_agg(locked.id) AS ids,
        array_agg(locked.is_last_attempt) AS are_last_attempts,
        array_agg(locked.payload_bytes) AS payload_bytes,
        array_agg(locked.priority) AS priorities,
        array_agg(locked.queue) AS queues,
        array_agg(locked.run_at) AS run_at,
        (
            SELECT max(groups.lock)
            FROM groups
            WHERE groups.place = 1000
                AND only_run IS NULL
        ) AS last_lock
    INTO by_lock
    FROM locked;
    IF by_lock.last_lock IS NOT NULL THEN
        -- The id 0 means that the share is a lock.
        last_definitions := last_definitions || 0::bigint;
        last_shares := last_shares || by_lock.last_lock;
    END IF;
    -- Step 4, for the runs of both lists, in the order of their places.
    SELECT found.*
    INTO allowed
    FROM jobctl.within_locks(
        ARRAY(
            SELECT candidate.id
            FROM unnest(
                ids || by_lock.ids,
                place_priorities || by_lock.priorities,
                place_run_at || by_lock.run_at,
                place_ids || by_lock.ids
            ) AS candidate (id, priority, run_at, place_id)
            ORDER BY candidate.priority, candidate.run_at, candidate.place_id
        )
    ) AS found;
    skipped_job := coalesce(skipped_job, allowed.skipped_job);
    SELECT
        array_agg(chosen.id ORDER BY chosen.place),
        array_agg(chosen.is_last_attempt ORDER BY chosen.place),
        array_agg(chosen.payload_bytes ORDER BY chosen.place),
        array_agg(chosen.priority ORDER BY chosen.place),
        array_agg(chosen.queue ORDER BY chosen.place),
        array_agg(chosen.run_at ORDER BY chosen.place),
        array_agg(chosen.place_id ORDER BY chosen.place)
    INTO
        ids,
        are_last_attempts,
        payload_bytes,
        place_priorities,
        place_queues,
        place_run_at,
        place_ids
    FROM unnest(
        ids || by_lock.ids,
        are_last_attempts || by_lock.are_last_attempts,
        payload_bytes || by_lock.payload_bytes,
        place_priorities || by_lock.priorities,
        place_queues || by_lock.queues,
        place_run_at || by_lock.run_at,
        place_ids || by_lock.ids
    ) WITH ORDINALITY
        AS chosen (id, is_last_attempt, payload_bytes, priority, queue, run_at, place_id, place)
    WHERE chosen.id = ANY (allowed.runs);
END
$$;
