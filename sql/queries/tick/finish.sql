-- running -> succeeded, failed, dead, cancelled or queued: the results of attempts, and their
-- history.
-- $1  worker; then arrays of equal length, one element an attempt:
-- $2  ids             $3  attempts       $4  statuses         $5  waits, seconds
-- $6  outcomes        $7  error_types    $8  errors           $9  details of errors
-- $10 exit_codes      $11 signals        $12 http_statuses    $13 outputs
-- $14 output_bytes    $15 truncated      $16 started_ago      $17 ended_ago, seconds
-- $18 claimed_at: times of the claims, which are in started_at. A worker may claim the same attempt
--     number twice: after a release, or after a failover to a replica without the first claim. The
--     second claim is a later transaction, so its now() is at least a microsecond later. The times
--     can only be equal if the new primary's clock is behind, and even then they must meet in the
--     same microsecond.
-- If an operator asked to cancel a run, or a newer run took its live key, it is not queued or
-- retried. If its max_attempts were lowered meanwhile, it is dead. An attempt that was interrupted
-- or snoozed uses up none of them, at most a hundred times.
-- A row per attempt that is recorded now, with the status of its run. Nothing is written for a
-- missing attempt: its lease is lost, or it was recorded before, see recorded_before.sql.
WITH ended AS (
    SELECT
        *,
        ended.status IN ('queued', 'failed') AS waits,
        ended.outcome IN ('interrupted', 'snoozed') AS is_uncounted
    FROM unnest(
        $2::bigint[],
        $3::integer[],
        $4::text[],
        $5::float8[],
        $6::text[],
        $7::text[],
        $8::text[],
        $9::text[],
        $10::integer[],
        $11::integer[],
        $12::integer[],
        $13::text[],
        $14::bigint[],
        $15::boolean[],
        $16::float8[],
        $17::float8[],
        $18::timestamptz[]
    ) AS ended (
        run_id,
        attempt,
        status,
        backoff,
        outcome,
        error_type,
        error,
        detail,
        exit_code,
        signal,
        http_status,
        output,
        output_bytes,
        output_truncated,
        started_ago,
        ended_ago,
        claimed_at
    )
),
recorded AS (
    UPDATE jobctl.job_runs AS run
    SET
        status = CASE
            WHEN ended.waits
                AND (run.cancel_requested_at IS NOT NULL OR run.key_scope = 'replaced')
                THEN 'cancelled'
            WHEN ended.waits
                AND run.attempts >= run.max_attempts + run.uncounted_attempts
                AND NOT (ended.is_uncounted AND run.uncounted_attempts < 100)
                THEN 'dead'
            ELSE ended.status
        END,
        run_at = CASE
            WHEN ended.waits THEN now() + make_interval(secs => ended.backoff)
            ELSE run.run_at
        END,
        uncounted_attempts = CASE
            WHEN ended.is_uncounted THEN least(run.uncounted_attempts + 1, 100)
            ELSE run.uncounted_attempts
        END,
        locked_by = NULL,
        locked_until = NULL,
        live_output = NULL,
        last_error = coalesce(ended.error, run.last_error),
        error_type = coalesce(ended.error_type, run.error_type),
        failed_at = CASE WHEN ended.error IS NULL THEN run.failed_at ELSE now() END,
        finished_at = CASE
            WHEN ended.waits
                AND run.cancel_requested_at IS NULL
                AND run.key_scope <> 'replaced'
                AND (
                    run.attempts < run.max_attempts + run.uncounted_attempts
                    OR (ended.is_uncounted AND run.uncounted_attempts < 100)
                )
                THEN NULL
            ELSE now()
        END,
        updated_at = now()
    FROM ended
    WHERE run.id = ended.run_id
        AND run.id = ANY ($2::bigint[])
        -- `coalesce` keeps the planner from using job_runs_running: while any session holds an old
        -- snapshot, all runs of the worker since then are still there.
        AND coalesce(
            run.status = 'running'
                AND run.locked_by = $1::text
                AND run.attempts = ended.attempt
                AND run.started_at = ended.claimed_at,
            false
        )
    RETURNING
        run.job_type,
        run.status AS status_now,
        -- A snooze that ends its run is a failure.
        CASE
            WHEN ended.outcome = 'snoozed' AND run.status = 'dead' THEN 'failed'
            ELSE ended.outcome
        END AS outcome_now,
        CASE
            WHEN run.status IN ('succeeded', 'dead', 'cancelled')
                THEN greatest(0, date_part('epoch', run.started_at - run.run_at))
        END AS waited,
        ended.*
),
history AS (
    INSERT INTO jobctl.job_attempts (
        run_id,
        attempt,
        worker,
        started_at,
        finished_at,
        outcome,
        error_type,
        error,
        exit_code,
        signal,
        http_status,
        output,
        output_bytes,
        output_truncated
    )
    SELECT
        recorded.run_id,
        recorded.attempt,
        $1::text,
        now() - make_interval(secs => recorded.started_ago),
        now() - make_interval(secs => recorded.ended_ago),
        recorded.outcome_now,
        recorded.error_type,
        coalesce(recorded.detail, recorded.error),
        recorded.exit_code,
        recorded.signal,
        recorded.http_status,
        recorded.output,
        recorded.output_bytes,
        recorded.output_truncated
    FROM recorded
    ON CONFLICT (run_id, attempt) DO NOTHING
    RETURNING run_id
),
counted AS MATERIALIZED (
    SELECT jobctl.count_attempts(
        array_agg(recorded.job_type),
        array_agg(recorded.status_now),
        array_agg(recorded.outcome_now),
        array_agg(
            CASE
                WHEN recorded.status_now = 'succeeded'
                    THEN recorded.started_ago - recorded.ended_ago
            END
        ),
        array_agg(recorded.waited)
    )
    FROM recorded
),
followed AS MATERIALIZED (
    SELECT jobctl.follow_up(array_agg(recorded.run_id)) AS queues
    FROM recorded
    WHERE recorded.status_now IN ('succeeded', 'dead', 'cancelled')
        -- Writes the history before the function reads it.
        AND (SELECT count(*) FROM history) >= 0
),
snoozed AS MATERIALIZED (
    SELECT jobctl.hold_snoozed(array_agg(recorded.run_id), $1::text)
    FROM recorded
    WHERE recorded.outcome_now = 'snoozed' AND recorded.status_now = 'queued'
    HAVING count(*) > 0
)
SELECT
    recorded.run_id AS id,
    recorded.attempt,
    recorded.claimed_at,
    recorded.status_now AS status,
    followed.queues AS queues_runs
FROM recorded
CROSS JOIN counted
CROSS JOIN followed
LEFT JOIN snoozed ON true
