-- Counts the due runs and schedules that a tick does not start on purpose. Always one row:
--   held       due runs that a hold keeps from this worker
--   excluded   due runs whose job or kind this tick excludes
--   schedules  due schedules that are paused
-- $1  queues, empty for all    $2  worker    $3  limit: the counts of runs stop there
-- $4  excluded_jobs            $5  excluded_kinds of definitions
WITH due AS NOT MATERIALIZED (
    SELECT
        run.job_type,
        run.queue
    FROM jobctl.pending_runs AS run
    WHERE run.is_due
        AND (cardinality($1::text[]) = 0 OR run.queue = ANY ($1::text[]))
)
SELECT
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM due
            WHERE EXISTS (
                SELECT FROM jobctl.current_holds AS hold
                WHERE (hold.scope, hold.name) IN (
                    ('all', ''),
                    ('worker', $2::text),
                    ('queue', due.queue),
                    ('job', due.job_type)
                )
            )
            LIMIT $3::bigint
        ) AS held
    ) AS held,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM due
            WHERE due.job_type = ANY ($4::text[])
                OR EXISTS (
                    SELECT FROM jobctl.job_definitions AS definition
                    WHERE definition.name = due.job_type
                        AND definition.kind = ANY ($5::text[])
                )
            LIMIT $3::bigint
        ) AS excluded
    ) AS excluded,
    (
        SELECT count(*)
        FROM jobctl.job_definitions AS definition
        WHERE definition.enabled
            AND definition.schedule IS NOT NULL
            AND definition.paused_at IS NOT NULL
            AND definition.next_run_at <= now()
    ) AS schedules
