-- The due runs of limited definitions that are within the limits, for claim_runs. Internal: no part
-- of the contract of the schema.
--
-- First locks definitions that limit their runs and seem to have due runs, until the end of the
-- transaction, so that no other claim counts their runs at the same time. Then counts in a later
-- snapshot. Skips definitions that another claim has locked. A call looks at 1,000 definitions and
-- locks 50. It looks at 100 runs of each: if none of them is due, another may be.
--
-- The shares of a definition take turns, a run a turn. They begin after the share that was claimed
-- last, by name.
--
-- A group is a share, a queue and a priority. A probe of job_runs_waiting_of_job finds each group
-- from the one before. A call looks at a thousand groups, which takes some milliseconds, but at 50
-- of each definition in any case, and at no more than 50 of one share. The next call looks at the
-- shares after them. A call locks some thousand runs at most, and skips runs that another session
-- has locked.
--
-- Returns arrays, one element a run in the order of turns, with its place among the runs of all
-- jobs. The first run in turn gets the place of the job's oldest run, the second that of the second
-- oldest. So turns do not change when the job is served. Returns also
--   skipped_job       the first name of a definition that another session has locked
--   last_definition   the last definition that this call looked at, if there may be more
--   last_definitions, last_shares: the last share that this call looked at, of each definition that
--                     has more
CREATE OR REPLACE FUNCTION jobctl.limited_runs(
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
    rates_ahead text;
    first_run_at timestamptz := '-infinity';
    first_id bigint := 0;
    last_run_at timestamptz := now();
    last_id bigint := 9223372036854775807;
BEGIN
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
    due AS MATERIALIZED (
        SELECT definition.id, definition.name
        FROM looked_at AS definition
        WHERE definition.name <> ALL (excluded_jobs)
            AND definition.kind <> ALL (excluded_kinds)
            -- A rate that is used up costs no lock and no count. No start can use it up for longer
            -- than its interval.
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
                        AND run.job_type NOT IN ('shell', 'http')
                        AND run.status IN ('queued', 'failed')
                    LIMIT 100
                ) AS first
                WHERE first.is_due OR first.place = 100
            )
        ORDER BY definition.id
        LIMIT 50
    ),
    locked AS MATERIALIZED (
        SELECT
            definition.id,
            definition.rate_next_at - (definition.most_at_once - 1) * definition.rate_interval
                > now() + definition.rate_interval + interval '1 minute' AS is_ahead
        FROM jobctl.job_definitions AS definition
        WHERE definition.id = ANY (ARRAY(SELECT due.id FROM due))
        FOR NO KEY UPDATE SKIP LOCKED
    ),
    begun_again AS (
        UPDATE jobctl.job_definitions AS definition
        SET rate_next_at = NULL
        WHERE definition.id = ANY (ARRAY(SELECT locked.id FROM locked WHERE locked.is_ahead))
        RETURNING definition.name
    )
    SELECT
        array_agg(locked.id) FILTER (WHERE locked.id IS NOT NULL),
        min(due.name) FILTER (WHERE locked.id IS NULL),
        (
            SELECT string_agg(begun_again.name, ', ' ORDER BY begun_again.name)
            FROM begun_again
        ),
        CASE
            WHEN (SELECT count(*) FROM due) = 50 THEN (SELECT max(due.id) FROM due)
            WHEN (SELECT count(*) FROM looked_at) = 1000 THEN (SELECT max(id) FROM looked_at)
        END
    INTO locked_ids, skipped_job, rates_ahead, last_definition
    FROM due
    LEFT JOIN locked ON locked.id = due.id;
    IF rates_ahead IS NOT NULL THEN
        RAISE WARNING 'jobctl: the rates of these jobs begin again, because the database''s clock '
            'was ahead: %', rates_ahead;
    END IF;
    IF locked_ids IS NULL THEN
        RETURN;
    END IF;
    IF only_run IS NOT NULL THEN
        SELECT run.run_at, run.id, least(run.run_at, now()), run.id
        INTO first_run_at, first_id, last_run_at, last_id
        FROM jobctl.job_runs AS run
        WHERE run.id = only_run;
    END IF;
    WITH RECURSIVE held AS MATERIALIZED (
        SELECT hold.scope, hold.name
        FROM jobctl.current_holds AS hold
    ),
    limits AS MATERIALIZED (
        SELECT *
        FROM (
            SELECT
                definition.id,
                definition.name,
                definition.max_running_per_share,
                coalesce(definition.last_share, '') AS last_share,
                least(
                    at_most,
                    definition.most_running - (
                        SELECT count(*)
                        FROM jobctl.job_runs AS run
                        WHERE run.status = 'running'
                            AND run.job_type = definition.name
                    ),
                    -- The generic cell rate algorithm (ITU-T I.371).
                    definition.most_at_once
                    - ceil(
                        extract(epoch FROM greatest(definition.rate_next_at - now(), interval '0'))
                        / extract(epoch FROM definition.rate_interval)
                    )
                )::integer AS most
            FROM jobctl.job_definitions AS definition
            WHERE definition.id = ANY (locked_ids)
                AND NOT EXISTS (
                    SELECT FROM held
                    WHERE held.scope = 'job' AND held.name = definition.name
                )
        ) AS definition
        WHERE definition.most > 0
    ),
    bounds AS MATERIALIZED (
        SELECT greatest(50, 1000 / greatest(count(*), 1)) AS groups
        FROM limits
    ),
    groups AS (
        -- A group that sorts after all of the share that was looked at last.
        SELECT
            limits.id,
            limits.name,
            limits.last_share,
            coalesce(after.share, limits.last_share) AS share,
            '' AS queue,
            0 AS priority,
            timestamptz 'infinity' AS oldest,
            -- The shares from the first one to last_share come after the others.
            coalesce(after.share <= limits.last_share, false) AS is_second_part,
            0 AS place,
            50 AS place_in_share
        FROM limits
        LEFT JOIN unnest(after_definitions, after_shares) AS after (id, share)
            ON after.id = limits.id
        UNION ALL
        -- After the last group of the first part, a row before the first one of the second part.
        SELECT
            groups.id,
            groups.name,
            groups.last_share,
            coalesce(following.share, ''),
            coalesce(following.queue, ''),
            coalesce(following.priority, -2147483648),
            coalesce(following.run_at, 'infinity'),
            groups.is_second_part OR following.share IS NULL,
            groups.place + (following.share IS NOT NULL)::integer,
            CASE
                WHEN following.share IS NULL THEN 0
                WHEN following.share = groups.share THEN groups.place_in_share + 1
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
                    -- No share has a control character, so this is behind all groups of the share.
                    groups.share || CASE WHEN groups.place_in_share < 50 THEN '' ELSE E'\x01' END,
                    groups.queue,
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
        ) AS following ON true
        WHERE groups.place < (SELECT bounds.groups FROM bounds)
            AND (following.share IS NOT NULL OR NOT groups.is_second_part)
    ),
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
    due AS MATERIALIZED (
        SELECT
            limits.id,
            limits.name,
            limits.last_share,
            limits.most,
            groups.share,
            groups.queue,
            groups.priority,
            limits.max_running_per_share - coalesce(running.runs, 0) AS most_of_share
        FROM groups
        JOIN limits
            ON limits.id = groups.id
        LEFT JOIN running
            ON running.job_type = groups.name
                AND running.share = groups.share
        WHERE groups.oldest <= now()
            AND (cardinality(queues) = 0 OR groups.queue = ANY (queues))
            AND NOT EXISTS (
                SELECT FROM held
                WHERE held.scope = 'queue' AND held.name = groups.queue
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
            waiting.id,
            waiting.run_at,
            waiting.payload_bytes,
            waiting.is_last_attempt
        FROM due
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
                AND run.id <> ALL (excluded_runs)
                AND NOT EXISTS (
                    SELECT FROM jobctl.job_runs AS replaced
                    WHERE replaced.status = 'running'
                        AND replaced.key_scope = 'replaced'
                        AND replaced.idempotency_key = run.idempotency_key
                )
            ORDER BY run.run_at, run.id
            LIMIT greatest(
                0,
                least(
                    due.most,
                    due.most_of_share,
                    (SELECT 5000 / greatest(count(*), 1) + 1 FROM due)
                )
            )
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS waiting
    ),
    in_turn AS (
        SELECT
            placed.*,
            nth_value(placed.priority, placed.place) OVER by_age AS place_priority,
            nth_value(placed.queue, placed.place) OVER by_age AS place_queue,
            nth_value(placed.run_at, placed.place) OVER by_age AS place_run_at,
            nth_value(placed.id, placed.place) OVER by_age AS place_of
        FROM (
            SELECT
                turns.*,
                row_number() OVER (
                    PARTITION BY turns.definition_id
                    ORDER BY turns.turn, turns.share <= turns.last_share, turns.share
                )::integer AS place
            FROM (
                SELECT
                    locked.*,
                    row_number() OVER (
                        PARTITION BY locked.definition_id, locked.share
                        ORDER BY locked.priority, locked.run_at, locked.id
                    ) AS turn
                FROM locked
            ) AS turns
            WHERE coalesce(turns.turn <= turns.most_of_share, true)
        ) AS placed
        WINDOW by_age AS (
            PARTITION BY placed.definition_id
            ORDER BY placed.priority, placed.run_at, placed.id
            ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
        )
    )
    SELECT
        array_agg(in_turn.id),
        array_agg(in_turn.is_last_attempt),
        array_agg(in_turn.payload_bytes),
        array_agg(in_turn.place_priority),
        array_agg(in_turn.place_queue),
        array_agg(in_turn.place_run_at),
        array_agg(in_turn.place_of),
        (
            SELECT array_agg(groups.id ORDER BY groups.id)
            FROM groups
            WHERE groups.place = (SELECT bounds.groups FROM bounds)
        ),
        (
            SELECT array_agg(groups.share ORDER BY groups.id)
            FROM groups
            WHERE groups.place = (SELECT bounds.groups FROM bounds)
        )
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
        FROM in_turn
        WHERE in_turn.place <= in_turn.most
        ORDER BY in_turn.definition_id, in_turn.place
    ) AS in_turn;
END
$$;
