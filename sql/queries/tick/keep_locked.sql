-- Stores the leases and results of running runs in job_locked_runs, because other sessions have
-- locked the rows of these runs. The runs stay as they are.
-- $1  worker    $2  ids    $3  attempts    $4  claimed_at, times of the claims
-- $5  lease, seconds    $6  results; NULL: the job still runs, and only its lease is stored
-- A row per claim whose lease or result was stored. Nothing is stored for a claim whose lease has
-- ended, because the session that has locked the row may be a tick that recovers the run.
WITH mine AS (
    SELECT *
    FROM unnest($2::bigint[], $3::integer[], $4::timestamptz[], $6::jsonb[])
        AS mine (id, attempt, claimed_at, result)
),
stored AS (
    INSERT INTO jobctl.job_locked_runs AS kept (
        run_id,
        attempt,
        worker,
        started_at,
        locked_until,
        result
    )
    SELECT
        run.id,
        run.attempts,
        $1::text AS worker,
        run.started_at,
        now() + make_interval(secs => $5::float8) AS locked_until,
        mine.result
    FROM jobctl.job_runs AS run
    JOIN mine ON mine.id = run.id
    -- With an array of ids, the planner looks up each run by its id.
    WHERE run.id = ANY ($2::bigint[])
        -- `coalesce` keeps the planner from the index job_runs_running: it may have many entries of
        -- ended runs, see end_runs.sql.
        AND coalesce(
            run.status = 'running'
                AND run.locked_by = $1::text
                AND run.attempts = mine.attempt
                AND run.started_at = mine.claimed_at,
            false
        )
        AND EXISTS (
            SELECT FROM jobctl.leases AS lease
            WHERE lease.id = run.id
                AND lease.locked_until > now()
        )
    ON CONFLICT (run_id) DO UPDATE SET
        attempt = excluded.attempt,
        worker = excluded.worker,
        started_at = excluded.started_at,
        locked_until = excluded.locked_until,
        result = excluded.result,
        written_at = excluded.written_at
    -- A renewal has no result, and must not remove the stored result of its claim. The worker may
    -- renew the lease after it stored the result, if it did not get the answer to that statement.
    WHERE excluded.result IS NOT NULL
        OR kept.result IS NULL
        OR kept.attempt <> excluded.attempt
        OR kept.started_at <> excluded.started_at
    RETURNING kept.run_id, kept.attempt, kept.started_at
)
SELECT
    stored.run_id AS id,
    stored.attempt,
    stored.started_at AS claimed_at,
    run.cancel_requested_at IS NOT NULL AS cancel_requested
FROM stored
JOIN jobctl.job_runs AS run ON run.id = stored.run_id
