-- Returns the usual run time of a job, from its last successes, at most 30. Each column but
-- `successes` is NULL if there is none. Internal: only jobctl calls it.
--
--   median_seconds, p95_seconds: the median and the 95th percentile of the run times
--   newest_run, newest_seconds: the newest of these runs, and its run time
--
-- A run time ends with the command, not when its result was recorded.
--
-- Two scans of an index read at most 1,000 runs each, the newest first. The first scan begins at
-- the newest run of the job. It may find only pending runs, so the second scan begins at the newest
-- running run.
CREATE OR REPLACE FUNCTION jobctl.usual_run_time(
    job text,
    OUT successes bigint,
    OUT median_seconds float8,
    OUT p95_seconds float8,
    OUT newest_run bigint,
    OUT newest_seconds float8
)
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
AS $$
    WITH success AS (
        SELECT DISTINCT newest.id, newest.attempts
        FROM (
            -- The first scan reads the runs before this id, which is the largest bigint.
            SELECT 9223372036854775807
            UNION ALL
            -- + 0 keeps the planner from reading all runs by id.
            SELECT max(run.id + 0)
            FROM jobctl.job_runs AS run
            WHERE run.status = 'running'
                AND run.job_type = usual_run_time.job
        ) AS scan (before)
        CROSS JOIN LATERAL (
            SELECT run.id, run.attempts
            FROM (
                SELECT run.job_type, run.id, run.attempts, run.status
                FROM jobctl.job_runs AS run
                -- BETWEEN keeps the planner from reading the runs of all jobs by id, as it may with
                -- `=`.
                WHERE run.job_type BETWEEN usual_run_time.job AND usual_run_time.job
                    AND run.status <> 'running'
                    AND run.id < scan.before
                ORDER BY run.job_type DESC, run.id DESC
                LIMIT 1000
            ) AS run
            WHERE run.status = 'succeeded'
            ORDER BY run.job_type DESC, run.id DESC
            LIMIT 30
        ) AS newest
        ORDER BY newest.id DESC
        LIMIT 30
    )
    SELECT
        count(*),
        percentile_disc(0.5) WITHIN GROUP (ORDER BY timed.took),
        percentile_disc(0.95) WITHIN GROUP (ORDER BY timed.took),
        max(success.id),
        (array_agg(timed.took ORDER BY success.id DESC))[1]
    FROM success
    -- OFFSET 0 makes the planner read these attempts by their runs, instead of all attempts.
    CROSS JOIN LATERAL (
        SELECT
            extract(
                epoch FROM greatest(attempt.finished_at, attempt.started_at) - attempt.started_at
            )::float8 AS took
        FROM jobctl.job_attempts AS attempt
        WHERE attempt.run_id = success.id
            AND attempt.attempt = success.attempts
        OFFSET 0
    ) AS timed
$$;
