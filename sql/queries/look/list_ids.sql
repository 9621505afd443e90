-- Lists the ids of matching runs: the newest first, or the latest end first.
-- $1  job    $2  queue    $3  key    $4  key_prefix    $5  share    $6  error_type
-- $7  error: a text in the last error, or in the last line of the last output if that attempt
--     failed. Upper and lower case do not matter
-- $8  paths of the payload, with dots, and their    $9  values
-- $10 enqueued_by    $11 worker of an attempt; NULL for any, like the others
-- $12 since    $13 until, exclusive; NULL for no bound. Both compare the end of a run, or its
--     creation if it has not ended
-- $14 unsettled: whether to leave out settled runs, and runs that a tick or a newer run cancelled.
--     With an error type, those that a tick cancelled are not left out
-- $15 statuses; NULL for any    $16 had_failures: whether only runs with a failed attempt match
-- $17 latest_end_first: whether to order by the time of $12, the latest first; else by id
-- $18 limit; NULL for all
-- $19 ids: only these runs; NULL for any
--
-- Texts are compared in lower case. First COLLATE "C" lowers the letters A to Z, because in Turkish
-- I and i are different letters. Then the locale of the database lowers the others.
--
-- Ended runs are read in the order of an index, until enough of them match. Running runs are few
-- and have an index of their own, so they are read separately. Waiting runs are read together with
-- the ended runs, or separately if there is a window, a key or a status: then one index finds the
-- waiting runs and another index the ended runs.
--
-- NOT MATERIALIZED: each part below reads the matching runs by an index of its own.
WITH matching AS NOT MATERIALIZED (
    SELECT run.*
    FROM jobctl.job_runs AS run
    CROSS JOIN LATERAL (
        SELECT lower(lower($7::text COLLATE "C") COLLATE "default") AS asked
    ) AS lowered
    WHERE ($15::text[] IS NULL OR run.status = ANY ($15::text[]))
        AND ($19::bigint[] IS NULL OR run.id = ANY ($19::bigint[]))
        AND ($2::text IS NULL OR run.queue = $2::text)
        AND ($3::text IS NULL OR run.idempotency_key = $3::text)
        -- Only LIKE lets the planner use the index of the keys.
        AND (
            $4::text IS NULL
            OR run.idempotency_key LIKE regexp_replace($4::text, '[\\%_]', '\\\&', 'g') || '%'
        )
        AND ($5::text IS NULL OR run.share = $5::text)
        AND ($6::text IS NULL OR run.error_type = $6::text)
        AND (
            $7::text IS NULL
            -- Only a run with an error type has an error.
            OR run.error_type IS NOT NULL
                AND (
                    strpos(
                        lower(lower(run.last_error COLLATE "C") COLLATE "default"),
                        lowered.asked
                    ) > 0
                    OR EXISTS (
                        SELECT
                        FROM jobctl.job_attempts AS attempt
                        CROSS JOIN LATERAL (
                            SELECT
                                lower(
                                    lower(right(attempt.output, 1000) COLLATE "C")
                                        COLLATE "default"
                                ) AS tail
                        ) AS output
                        WHERE attempt.run_id = run.id
                            AND attempt.attempt = run.attempts
                            AND attempt.outcome IN ('failed', 'lease_expired')
                            -- A fast test first, because most outputs do not contain the text.
                            AND strpos(output.tail, lowered.asked) > 0
                            AND strpos(jobctl.last_line(output.tail), lowered.asked) > 0
                    )
                )
        )
        AND (
            cardinality($8::text[]) = 0
            OR NOT EXISTS (
                SELECT
                FROM unnest($8::text[], $9::text[]) AS wanted (path, value)
                -- A JSON null is compared as the text `null`: `#>>` returns NULL for it.
                WHERE coalesce(
                        run.payload #>> string_to_array(wanted.path, '.'),
                        (run.payload #> string_to_array(wanted.path, '.'))::text
                    )
                    IS DISTINCT FROM wanted.value
            )
        )
        AND ($10::text IS NULL OR run.enqueued_by = $10::text)
        AND (
            $11::text IS NULL
            OR run.locked_by = $11::text
            OR EXISTS (
                SELECT
                FROM jobctl.job_attempts AS attempt
                WHERE attempt.run_id = run.id
                    AND attempt.worker = $11::text
            )
        )
        AND (
            NOT $16::boolean
            OR EXISTS (
                SELECT
                FROM jobctl.job_attempts AS attempt
                WHERE attempt.run_id = run.id
                    AND attempt.outcome IN ('failed', 'lease_expired')
            )
        )
),
ended_or_waiting AS (
    SELECT run.id, run.finished_at AS at
    FROM matching AS run
    WHERE run.status <> 'running'
        -- With a key, a window or a status, `waiting` reads the waiting runs.
        AND (
            num_nonnulls(
                $3::text, $4::text, $12::timestamptz, $13::timestamptz, $15::text[]
            ) = 0
            OR run.finished_at IS NOT NULL
        )
        -- With `=`, the planner would drop the job from ORDER BY, and not use the index with it.
        AND ($1::text IS NULL OR run.job_type BETWEEN $1::text AND $1::text)
        -- Speeds up a search by worker through all runs: it reads no run before the first run of
        -- this worker, and none for a worker without runs (the largest bigint).
        AND run.id >= CASE
            WHEN $11::text IS NOT NULL
                AND coalesce($12::timestamptz, $13::timestamptz) IS NULL
                AND $15::text[] IS NULL
                THEN coalesce(
                    (
                        SELECT min(attempt.run_id)
                        FROM jobctl.job_attempts AS attempt
                        WHERE attempt.worker = $11::text
                    ),
                    9223372036854775807
                )
            ELSE 0
        END
        AND (
            NOT $14::boolean
            OR run.settled_at IS NULL
                AND (
                    run.status <> 'cancelled'
                    OR run.key_scope <> 'replaced'
                        AND (
                            $6::text IS NOT NULL
                            OR coalesce(run.error_type, '')
                                NOT IN ('expired', 'dropped', 'predecessor')
                        )
                )
        )
        AND (
            $12::timestamptz IS NULL AND $13::timestamptz IS NULL
            OR run.finished_at >= coalesce($12::timestamptz, '-infinity')
                AND run.finished_at < coalesce($13::timestamptz, 'infinity')
        )
    ORDER BY
        CASE WHEN $17::boolean THEN run.finished_at END DESC,
        -- The indexes of one job have this order.
        CASE WHEN $1::text IS NOT NULL AND NOT $17::boolean THEN run.job_type END DESC,
        run.id DESC
    -- 0 if all statuses are of unfinished runs: then no ended run matches, but the planner may not
    -- see that.
    LIMIT CASE
        WHEN NOT $15::text[] && ARRAY['succeeded', 'dead', 'cancelled'] THEN 0
        ELSE $18::bigint
    END
),
waiting AS NOT MATERIALIZED (
    SELECT run.id, run.status, run.created_at AS at
    FROM matching AS run
    -- Otherwise, ended_or_waiting reads the waiting runs.
    WHERE num_nonnulls($3::text, $4::text, $12::timestamptz, $13::timestamptz, $15::text[]) > 0
        AND ($1::text IS NULL OR run.job_type = $1::text)
        AND run.created_at >= coalesce($12::timestamptz, '-infinity')
        AND run.created_at < coalesce($13::timestamptz, 'infinity')
        -- The condition of the index job_runs_key, so that the planner uses it. It is true for each
        -- waiting run.
        AND (
            $3::text IS NULL
            OR run.key_scope = 'retained'
            OR (run.key_scope = 'live' AND run.status IN ('blocked', 'queued', 'running', 'failed'))
        )
)
SELECT found.id
FROM (
    SELECT * FROM ended_or_waiting
    UNION ALL
    SELECT run.id, run.created_at AS at
    FROM matching AS run
    WHERE run.status = 'running'
        AND ($1::text IS NULL OR run.job_type = $1::text)
        AND run.created_at >= coalesce($12::timestamptz, '-infinity')
        AND run.created_at < coalesce($13::timestamptz, 'infinity')
    UNION ALL
    -- Pending and blocked runs have an index each.
    (
        SELECT waiting.id, waiting.at
        FROM waiting
        WHERE waiting.status IN ('queued', 'failed')
        ORDER BY CASE WHEN $17::boolean THEN waiting.at END DESC, waiting.id DESC
        LIMIT $18::bigint
    )
    UNION ALL
    (
        SELECT waiting.id, waiting.at
        FROM waiting
        WHERE waiting.status = 'blocked'
        ORDER BY CASE WHEN $17::boolean THEN waiting.at END DESC, waiting.id DESC
        LIMIT $18::bigint
    )
) AS found
ORDER BY
    CASE WHEN $17::boolean THEN found.at END DESC,
    found.id DESC
LIMIT $18::bigint
