-- Deletes old runs: succeeded, dead or cancelled -> deleted. A trigger deletes their history. Skips
-- runs that other sessions have locked, and runs for which an unfinished run waits or has waited.
-- Writes one event, with the number of runs.
-- $1  ids    $2  keep    $3  keep_dead: seconds after their end until runs are old, if no
--     definition says it
-- $4  host_user    $5  reason, for the trail
-- $6  archives: whether to return each deleted run as JSON: its columns, and its attempts as
--     `history`
-- A row per deleted run.
WITH old AS MATERIALIZED (
    SELECT run.id
    FROM jobctl.job_runs AS run
    LEFT JOIN jobctl.job_definitions AS definition ON definition.name = run.job_type
    WHERE run.id = ANY ($1::bigint[])
        -- A run that was retried since its id was chosen has not finished. Its finished_at is NULL,
        -- which `greatest` below ignores.
        AND run.finished_at IS NOT NULL
        -- An imported run can have a finished_at before its created_at. The later time counts, so
        -- that the caller of old_runs.sql can stop at the first run that was created too lately.
        AND greatest(run.created_at, run.finished_at) < now() - CASE run.status
            WHEN 'dead' THEN coalesce(definition.keep_dead, make_interval(secs => $3::float8))
            ELSE coalesce(definition.keep, make_interval(secs => $2::float8))
        END
        AND NOT EXISTS (SELECT FROM jobctl.awaited_runs AS awaited WHERE awaited.id = run.id)
    FOR UPDATE OF run SKIP LOCKED
),
deleted AS (
    DELETE FROM jobctl.job_runs AS run
    USING old
    WHERE run.id = old.id
    RETURNING
        run.id,
        run.status,
        -- payload_bytes is a generated column.
        CASE WHEN $6::boolean THEN to_jsonb(run) - 'payload_bytes' END AS columns
),
trail AS (
    INSERT INTO jobctl.job_events (action, host_user, reason, detail)
    SELECT
        'prune' AS action,
        $4::text AS host_user,
        $5::text AS reason,
        string_agg(counted.runs || ' ' || counted.status, ', ' ORDER BY counted.status) AS detail
    FROM (
        SELECT deleted.status, count(*) AS runs
        FROM deleted
        GROUP BY deleted.status
    ) AS counted
    HAVING count(*) > 0
)
SELECT
    deleted.id,
    deleted.status,
    CASE WHEN $6::boolean
        THEN (
            deleted.columns || jsonb_build_object(
                'history',
                -- The trigger has deleted these rows, but the snapshot of the statement has them.
                ARRAY(
                    SELECT to_jsonb(ended) - 'run_id'
                    FROM jobctl.job_attempts AS ended
                    WHERE ended.run_id = deleted.id
                    ORDER BY ended.attempt
                )
            )
        )::text
    END AS json
FROM old
CROSS JOIN jobctl.require_written(
    'job_runs',
    chosen => (SELECT count(*) FROM old),
    written => (SELECT count(*) FROM deleted)
)
LEFT JOIN deleted ON deleted.id = old.id
ORDER BY deleted.id
