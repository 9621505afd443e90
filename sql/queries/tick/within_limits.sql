-- The due runs of limited definitions that are within the limits, locked, in the order of turns.
-- Skips runs that another session has locked.
-- $1  definitions that lock_limited.sql has locked, so that no other claim counts at the same time
-- $2  queues, empty for all    $3  maximum number per definition    $4  ids of excluded runs
--
-- The shares of a definition take turns, a run a turn. They begin after the share that was claimed
-- last, by name. A probe of job_runs_waiting_of_job finds each share from the one before.
--
-- A row per run, with its place among the runs of all jobs. The first run in turn gets the place
-- of the job's oldest run, the second that of the second oldest. So turns do not change when the
-- job is served.
WITH RECURSIVE limits AS MATERIALIZED (
    SELECT
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
),
shares AS (
    SELECT limits.name, first.share
    FROM limits
    CROSS JOIN LATERAL (
        SELECT coalesce(run.share, '') AS share
        FROM jobctl.job_runs AS run
        WHERE run.status IN ('queued', 'failed')
            AND run.job_type = limits.name
            AND run.job_type NOT IN ('shell', 'http')
        ORDER BY coalesce(run.share, '')
        LIMIT 1
    ) AS first
    WHERE limits.most > 0
    UNION ALL
    SELECT shares.name, following.share
    FROM shares
    CROSS JOIN LATERAL (
        SELECT coalesce(run.share, '') AS share
        FROM jobctl.job_runs AS run
        WHERE run.status IN ('queued', 'failed')
            AND run.job_type = shares.name
            AND run.job_type NOT IN ('shell', 'http')
            AND coalesce(run.share, '') > shares.share
        ORDER BY coalesce(run.share, '')
        LIMIT 1
    ) AS following
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
)
SELECT
    in_turn.id,
    in_turn.is_last_attempt,
    in_turn.payload_bytes,
    in_turn.place_priority,
    in_turn.place_queue,
    in_turn.place_run_at,
    in_turn.place_of
FROM limits
CROSS JOIN LATERAL (
    SELECT
        numbered.*,
        nth_value(numbered.priority, numbered.place) OVER by_age AS place_priority,
        nth_value(numbered.queue, numbered.place) OVER by_age AS place_queue,
        nth_value(numbered.run_at, numbered.place) OVER by_age AS place_run_at,
        nth_value(numbered.id, numbered.place) OVER by_age AS place_of
    FROM (
        SELECT
            due.*,
            row_number() OVER (
                ORDER BY due.turn, shares.share <= limits.last_share, shares.share
            )::integer AS place
        FROM shares
        LEFT JOIN running
            ON running.job_type = shares.name
                AND running.share = shares.share
        CROSS JOIN LATERAL (
            SELECT
                locked.*,
                row_number() OVER (ORDER BY locked.priority, locked.run_at, locked.id) AS turn
            FROM (
                SELECT
                    run.id,
                    run.priority,
                    run.queue,
                    run.run_at,
                    run.payload_bytes,
                    run.attempts + 1 >= run.max_attempts AS is_last_attempt
                FROM jobctl.job_runs AS run
                WHERE run.status IN ('queued', 'failed')
                    AND run.job_type = limits.name
                    AND run.job_type NOT IN ('shell', 'http')
                    AND coalesce(run.share, '') = shares.share
                    AND run.run_at <= now()
                    AND coalesce(run.expires_at > now(), true)
                    AND run.id <> ALL ($4::bigint[])
                    AND (cardinality($2::text[]) = 0 OR run.queue = ANY ($2::text[]))
                    AND NOT EXISTS (
                        SELECT FROM jobctl.current_holds AS hold
                        WHERE (hold.scope, hold.name)
                            IN (('job', run.job_type), ('queue', run.queue))
                    )
                    AND NOT EXISTS (
                        SELECT FROM jobctl.job_runs AS replaced
                        WHERE replaced.status = 'running'
                            AND replaced.key_scope = 'replaced'
                            AND replaced.idempotency_key = run.idempotency_key
                    )
                ORDER BY run.priority, run.run_at, run.id
                LIMIT greatest(
                    0,
                    least(limits.most, limits.max_running_per_share - coalesce(running.runs, 0))
                )
                FOR NO KEY UPDATE SKIP LOCKED
            ) AS locked
        ) AS due
        WHERE shares.name = limits.name
    ) AS numbered
    WINDOW by_age AS (
        ORDER BY numbered.priority, numbered.run_at, numbered.id
        ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
    )
) AS in_turn
WHERE in_turn.place <= limits.most
ORDER BY limits.name, in_turn.place
