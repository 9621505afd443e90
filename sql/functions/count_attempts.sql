-- Adds attempts that have just ended to the figures of their jobs (job_figures), and runs that
-- expired or were dropped without an attempt. The arguments are arrays of equal length, one element
-- per attempt or run. Internal: only jobctl calls it.
--
--   statuses      statuses of the runs now
--   outcomes      outcomes of the attempts; `expired` or `dropped` for a run without an attempt
--   run_times     seconds; NULL: the attempt did not succeed
--   wait_times    seconds from due to start; NULL: the attempt did not end its run
--
-- A function, so that PostgreSQL caches the plans: without the cache, these statements take three
-- times as long. STRICT: with a NULL array, as after a call that ended no run, it does nothing.
-- SECURITY DEFINER: a worker may add to figures, but not change them otherwise.
CREATE OR REPLACE FUNCTION jobctl.count_attempts(
    runs bigint[],
    job_types text[],
    statuses text[],
    outcomes text[],
    run_times float8[],
    wait_times float8[]
)
RETURNS void
LANGUAGE plpgsql
STRICT
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $$
DECLARE
    counted record;
    -- The newest row of the job and the day that no other session has locked.
    target record;
    has_succeeded boolean;
BEGIN
    FOR counted IN
        SELECT
            ended.job_type,
            count(*) FILTER (WHERE ended.status = 'succeeded') AS succeeded,
            count(*) FILTER (WHERE ended.status = 'dead') AS dead,
            count(*) FILTER (WHERE ended.outcome = 'expired') AS expired,
            count(*) FILTER (WHERE ended.outcome = 'dropped') AS dropped,
            count(*) FILTER (WHERE ended.outcome IN ('failed', 'lease_expired'))
                AS failed_attempts,
            max(ended.run) FILTER (WHERE ended.outcome IN ('failed', 'lease_expired'))
                AS failed_run,
            count(*) FILTER (
                WHERE ended.outcome IN ('failed', 'lease_expired')
                    AND ended.status IN ('queued', 'failed')
            ) AS retried_attempts,
            -- Limit each time to 0 to 1e9 seconds: a worker may pass any number, and the sum must
            -- not overflow.
            coalesce(
                sum(least(greatest(ended.run_time, 0), 1e9))
                    FILTER (WHERE ended.run_time IS NOT NULL),
                0
            ) AS run_time_seconds,
            coalesce(
                sum(least(greatest(ended.wait_time, 0), 1e9))
                    FILTER (WHERE ended.wait_time IS NOT NULL),
                0
            ) AS wait_seconds,
            ARRAY[
                count(*) FILTER (WHERE ended.wait_time <= 1),
                count(*) FILTER (WHERE ended.wait_time <= 10),
                count(*) FILTER (WHERE ended.wait_time <= 30),
                count(*) FILTER (WHERE ended.wait_time <= 60),
                count(*) FILTER (WHERE ended.wait_time <= 300),
                count(*) FILTER (WHERE ended.wait_time <= 3600),
                count(ended.wait_time)
            ] AS waits,
            -- The attempts of a job ended at the same time, so none is the last. Store the most
            -- important end: a death, then a success, then a failure. Runs that expired or were
            -- dropped leave last_status as it is.
            CASE
                WHEN bool_or(ended.status = 'dead') THEN 'dead'
                WHEN bool_or(ended.status = 'succeeded') THEN 'succeeded'
                WHEN bool_or(ended.outcome IN ('failed', 'lease_expired')) THEN 'failed'
                WHEN bool_or(ended.status = 'cancelled' AND ended.outcome <> 'expired')
                    THEN 'cancelled'
            END AS last_status
        FROM unnest(runs, job_types, statuses, outcomes, run_times, wait_times)
            AS ended (run, job_type, status, outcome, run_time, wait_time)
        GROUP BY ended.job_type
    LOOP
        -- Skips rows that other ticks have locked, so that no tick waits here.
        SELECT figures.id, figures.part, figures.writes, figures.failing_since INTO target
        FROM jobctl.job_figures AS figures
        WHERE figures.job_type = counted.job_type
            AND figures.day = (now() AT TIME ZONE 'UTC')::date
        ORDER BY figures.part DESC
        LIMIT 1
        FOR NO KEY UPDATE SKIP LOCKED;
        -- Adds a row if all are locked. Also if the row has had 1,000 writes: while a session holds
        -- an old snapshot, each write leaves a row version that the next one must step over.
        IF NOT FOUND OR target.writes >= 1000 THEN
            INSERT INTO jobctl.job_figures (job_type, part)
            VALUES (counted.job_type, coalesce(target.part, 0) + 1)
            RETURNING id, part, writes, failing_since INTO target;
        END IF;
        -- Whether the job has succeeded since failing_since: another row of the job may have that
        -- success. Then the failures of this row are counted from the start again.
        has_succeeded := counted.failed_attempts > 0
            AND target.failing_since IS NOT NULL
            AND EXISTS (
                SELECT FROM jobctl.job_figures AS figures
                WHERE figures.job_type = counted.job_type
                    AND figures.day >= (target.failing_since AT TIME ZONE 'UTC')::date
                    AND figures.last_succeeded_at >= target.failing_since
            );
        UPDATE jobctl.job_figures AS figures
        SET
            writes = figures.writes + 1,
            succeeded = figures.succeeded + counted.succeeded,
            dead = figures.dead + counted.dead,
            expired = figures.expired + counted.expired,
            dropped = figures.dropped + counted.dropped,
            failed_attempts = figures.failed_attempts + counted.failed_attempts,
            retried_attempts = figures.retried_attempts + counted.retried_attempts,
            run_time_seconds = figures.run_time_seconds + counted.run_time_seconds,
            wait_seconds = figures.wait_seconds + counted.wait_seconds,
            waits = ARRAY(
                SELECT bucket.before + bucket.more
                FROM unnest(figures.waits, counted.waits) AS bucket (before, more)
            ),
            last_ended_at = CASE
                WHEN counted.last_status IS NULL THEN figures.last_ended_at
                ELSE now()
            END,
            last_status = coalesce(counted.last_status, figures.last_status),
            last_succeeded_at = CASE
                WHEN counted.succeeded = 0 THEN figures.last_succeeded_at
                ELSE now()
            END,
            failures_in_row = CASE
                WHEN counted.succeeded > 0 THEN 0
                WHEN has_succeeded THEN counted.failed_attempts
                ELSE figures.failures_in_row + counted.failed_attempts
            END,
            failing_since = CASE
                WHEN counted.succeeded > 0 THEN NULL
                WHEN counted.failed_attempts = 0 THEN figures.failing_since
                WHEN has_succeeded THEN now()
                ELSE coalesce(figures.failing_since, now())
            END,
            failing_run = coalesce(counted.failed_run, figures.failing_run)
        WHERE figures.id = target.id;
    END LOOP;
EXCEPTION
    -- A result matters more than its figures. So it is also recorded if the figures take longer
    -- than a statement may, which raises QUERY_CANCELED.
    WHEN OTHERS OR QUERY_CANCELED THEN
        RAISE WARNING 'jobctl: figures are not counted: %', SQLERRM;
END
$$;
