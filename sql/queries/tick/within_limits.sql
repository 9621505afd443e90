-- The due runs of limited definitions that are within the limits, locked, in the order of turns.
-- Skips runs that another session has locked.
-- $1  locked: definitions that lock_limited.sql has locked, so that no other claim counts at the
--     same time
-- $2  queues, empty for all    $3  at_most, per definition    $4  excluded_runs
-- The shares after which to continue:
-- $5  after_definitions    $6  after_shares    $7  only_run: NULL for any
--
-- The shares of a definition take turns, a run a turn. They begin after the share that was claimed
-- last, by name.
--
-- A group is a share, a queue and a priority. A probe of job_runs_waiting_of_job finds each group
-- from the one before. A claim looks at a thousand groups, which takes some milliseconds, but at 50
-- of each definition in any case, and at no more than 50 of one share. The next claim looks at the
-- shares after them. A claim locks some thousand runs at most.
--
-- A row per run, with its place among the runs of all jobs. The first run in turn gets the place
-- of the job's oldest run, the second that of the second oldest. So turns do not change when the
-- job is served. Then a row per definition of which this claim did not look at all shares, without
-- a run.
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
                $3::integer,
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
        WHERE definition.id = ANY ($1::bigint[])
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
    LEFT JOIN unnest($5::bigint[], $6::text[]) AS after (id, share)
        ON after.id = limits.id
    UNION ALL
    SELECT
        groups.id,
        groups.name,
        groups.last_share,
        following.share,
        following.queue,
        following.priority,
        following.run_at,
        following.is_second_part,
        groups.place + 1,
        CASE WHEN following.is_same_share THEN groups.place_in_share + 1 ELSE 1 END
    FROM groups
    CROSS JOIN LATERAL (
        (
            SELECT
                true AS is_same_share,
                groups.is_second_part,
                groups.share,
                run.queue,
                run.priority,
                run.run_at
            FROM jobctl.job_runs AS run
            WHERE run.status IN ('queued', 'failed')
                AND run.job_type = groups.name
                AND run.job_type NOT IN ('shell', 'http')
                AND coalesce(run.share, '') = groups.share
                AND groups.place_in_share < 50
                AND (run.queue, run.priority) > (
                    groups.queue,
                    CASE
                        WHEN cardinality($2::text[]) = 0 OR groups.queue = ANY ($2::text[])
                            THEN groups.priority
                        ELSE 2147483647
                    END
                )
            ORDER BY run.queue, run.priority, run.run_at
            LIMIT 1
        )
        UNION ALL
        (
            SELECT
                false,
                groups.is_second_part,
                coalesce(run.share, ''),
                run.queue,
                run.priority,
                run.run_at
            FROM jobctl.job_runs AS run
            WHERE run.status IN ('queued', 'failed')
                AND run.job_type = groups.name
                AND run.job_type NOT IN ('shell', 'http')
                AND coalesce(run.share, '') > groups.share
                AND (NOT groups.is_second_part OR coalesce(run.share, '') <= groups.last_share)
            ORDER BY coalesce(run.share, ''), run.queue, run.priority, run.run_at
            LIMIT 1
        )
        UNION ALL
        (
            SELECT
                false,
                true,
                coalesce(run.share, ''),
                run.queue,
                run.priority,
                run.run_at
            FROM jobctl.job_runs AS run
            WHERE run.status IN ('queued', 'failed')
                AND run.job_type = groups.name
                AND run.job_type NOT IN ('shell', 'http')
                AND coalesce(run.share, '') <= groups.last_share
                AND NOT groups.is_second_part
            ORDER BY coalesce(run.share, ''), run.queue, run.priority, run.run_at
            LIMIT 1
        )
        LIMIT 1
    ) AS following
    WHERE groups.place < (SELECT bounds.groups FROM bounds)
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
        AND (cardinality($2::text[]) = 0 OR groups.queue = ANY ($2::text[]))
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
            AND run.run_at <= now()
            AND coalesce(run.expires_at > now(), true)
            AND run.id <> ALL ($4::bigint[])
            AND ($7::bigint IS NULL OR run.id = $7::bigint)
            AND NOT EXISTS (
                SELECT FROM jobctl.job_runs AS replaced
                WHERE replaced.status = 'running'
                    AND replaced.key_scope = 'replaced'
                    AND replaced.idempotency_key = run.idempotency_key
            )
        ORDER BY run.run_at, run.id
        LIMIT greatest(
            0,
            least(due.most, due.most_of_share, (SELECT 5000 / greatest(count(*), 1) + 1 FROM due))
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
    in_turn.definition_id AS definition,
    in_turn.share,
    in_turn.place,
    in_turn.id,
    in_turn.is_last_attempt,
    in_turn.payload_bytes,
    in_turn.place_priority,
    in_turn.place_queue,
    in_turn.place_run_at,
    in_turn.place_of
FROM in_turn
WHERE in_turn.place <= in_turn.most
UNION ALL
SELECT groups.id, groups.share, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM groups
WHERE groups.place = (SELECT bounds.groups FROM bounds)
ORDER BY definition, place
