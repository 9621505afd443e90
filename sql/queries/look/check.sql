-- The facts that `check` judges: numbers of runs, the worst run or schedule of each kind, and all
-- workers, the latest tick first. One row.
-- $1  jobs; NULL for all    $2  age in seconds up to which failures count; NULL to count none
-- A run counts as failed once, by its latest failure, unless it was cancelled or interrupted.
WITH dead AS (
    SELECT count(*) AS runs
    FROM jobctl.job_runs AS run
    WHERE run.status = 'dead'
        AND ($1::text[] IS NULL OR run.job_type = ANY ($1::text[]))
),
newest_dead AS (
    SELECT run.id, run.job_type, run.last_error
    FROM jobctl.job_runs AS run
    WHERE run.status = 'dead'
        AND ($1::text[] IS NULL OR run.job_type = ANY ($1::text[]))
    ORDER BY run.finished_at DESC, run.id DESC
    LIMIT 1
),
oldest_due AS (
    SELECT run.id, run.job_type, extract(epoch FROM now() - run.run_at)::float8 AS age
    FROM jobctl.job_runs AS run
    WHERE run.status IN ('queued', 'failed')
        AND run.run_at <= now()
        AND ($1::text[] IS NULL OR run.job_type = ANY ($1::text[]))
    ORDER BY run.run_at, run.id
    LIMIT 1
),
longest_running AS (
    SELECT
        run.id,
        run.job_type,
        run.locked_by,
        extract(epoch FROM now() - run.started_at)::float8 AS age
    FROM jobctl.job_runs AS run
    WHERE run.status = 'running'
        AND ($1::text[] IS NULL OR run.job_type = ANY ($1::text[]))
    ORDER BY run.started_at, run.id
    LIMIT 1
),
longest_lost AS (
    SELECT run.id, run.job_type, extract(epoch FROM now() - run.locked_until)::float8 AS age
    FROM jobctl.job_runs AS run
    WHERE run.status = 'running'
        AND run.locked_until < now()
        AND ($1::text[] IS NULL OR run.job_type = ANY ($1::text[]))
    ORDER BY run.locked_until, run.id
    LIMIT 1
),
latest_schedule AS (
    SELECT definition.name, extract(epoch FROM now() - definition.next_run_at)::float8 AS age
    FROM jobctl.job_definitions AS definition
    WHERE definition.enabled
        AND definition.paused_at IS NULL
        AND definition.next_run_at <= now()
        AND ($1::text[] IS NULL OR definition.name = ANY ($1::text[]))
    ORDER BY definition.next_run_at, definition.name
    LIMIT 1
),
-- A run that failed within this time is unfinished, or finished within this time. Each branch
-- has an index.
lately AS (
    SELECT run.id, run.job_type, run.status, run.error_type, run.last_error, run.failed_at
    FROM jobctl.job_runs AS run
    WHERE run.status IN ('queued', 'failed')
    UNION ALL
    SELECT run.id, run.job_type, run.status, run.error_type, run.last_error, run.failed_at
    FROM jobctl.job_runs AS run
    WHERE run.status = 'running'
    UNION ALL
    SELECT run.id, run.job_type, run.status, run.error_type, run.last_error, run.failed_at
    FROM jobctl.job_runs AS run
    WHERE run.finished_at > now() - make_interval(secs => $2::float8)
),
failed AS (
    SELECT lately.id, lately.job_type, lately.last_error, lately.failed_at
    FROM lately
    WHERE lately.failed_at > now() - make_interval(secs => $2::float8)
        AND lately.status <> 'cancelled'
        AND lately.error_type IS DISTINCT FROM 'interrupted'
        AND ($1::text[] IS NULL OR lately.job_type = ANY ($1::text[]))
),
newest_failed AS (
    SELECT failed.id, failed.job_type, failed.last_error
    FROM failed
    ORDER BY failed.failed_at DESC, failed.id DESC
    LIMIT 1
),
workers AS (
    SELECT
        coalesce(array_agg(ticked.worker), '{}') AS names,
        coalesce(array_agg(ticked.age), '{}') AS ages,
        coalesce(array_agg(ticked.missed_for), '{}') AS missed
    FROM (
        SELECT
            worker.worker,
            extract(epoch FROM now() - worker.last_tick_at)::float8 AS age,
            extract(epoch FROM worker.missed_for)::float8 AS missed_for
        FROM jobctl.job_workers AS worker
        ORDER BY worker.last_tick_at DESC, worker.worker
    ) AS ticked
)
SELECT
    dead.runs AS dead,
    newest_dead.id AS newest_dead_id,
    newest_dead.job_type AS newest_dead_job,
    left(newest_dead.last_error, 10000) AS newest_dead_error,
    oldest_due.id AS oldest_due_id,
    oldest_due.job_type AS oldest_due_job,
    oldest_due.age AS oldest_due_age,
    longest_running.id AS longest_running_id,
    longest_running.job_type AS longest_running_job,
    left(longest_running.locked_by, 255) AS longest_running_worker,
    longest_running.age AS longest_running_age,
    longest_lost.id AS longest_lost_id,
    longest_lost.job_type AS longest_lost_job,
    longest_lost.age AS longest_lost_age,
    latest_schedule.name AS latest_schedule_name,
    latest_schedule.age AS latest_schedule_age,
    (SELECT count(*) FROM failed) AS failed,
    newest_failed.id AS newest_failed_id,
    newest_failed.job_type AS newest_failed_job,
    left(newest_failed.last_error, 10000) AS newest_failed_error,
    workers.names AS worker_names,
    workers.ages AS worker_ages,
    workers.missed AS workers_missed
FROM dead
CROSS JOIN workers
LEFT JOIN newest_dead ON true
LEFT JOIN oldest_due ON true
LEFT JOIN longest_running ON true
LEFT JOIN longest_lost ON true
LEFT JOIN latest_schedule ON true
LEFT JOIN newest_failed ON true
