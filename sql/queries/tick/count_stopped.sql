-- Counts what a tick leaves alone on purpose: due runs that a hold keeps from this worker, and due
-- schedules that are paused.
-- $1  queues, empty for all    $2  worker    $3  maximum number of runs
-- Always one row.
SELECT
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM jobctl.job_runs AS run
            WHERE run.status IN ('queued', 'failed')
                AND run.run_at <= now()
                AND coalesce(run.expires_at > now(), true)
                AND (cardinality($1::text[]) = 0 OR run.queue = ANY ($1::text[]))
                AND EXISTS (
                    SELECT FROM jobctl.current_holds AS hold
                    WHERE (hold.scope, hold.name) IN (
                        ('all', ''),
                        ('worker', $2::text),
                        ('queue', run.queue),
                        ('job', run.job_type)
                    )
                )
            LIMIT $3::bigint
        ) AS held
    ) AS runs,
    (
        SELECT count(*)
        FROM jobctl.job_definitions AS definition
        WHERE definition.enabled
            AND definition.schedule IS NOT NULL
            AND definition.paused_at IS NOT NULL
            AND definition.next_run_at <= now()
    ) AS schedules
