-- succeeded, dead or cancelled -> deleted: runs that finished longer ago than an age, the oldest
-- first, at most n. A trigger deletes their history. Writes one event, with the number of runs.
-- If $1 contains dead, it also deletes at most n events older than $2 and than 90 days, so that the
-- deletion of dead runs stays in the trail.
-- $1  statuses    $2  age, seconds    $5  n    $6  host user    $7  reason, for the trail
-- $3  finished_at and $4  id of the last deleted run; NULL at first. The index scan continues after
--     it: earlier entries may be deleted, but stay in the index while any snapshot sees them.
-- $8  whether to return each deleted run as JSON: its columns, and its attempts as `history`
-- Fewer than n rows: no more are left, except runs that other sessions have locked.
WITH old AS MATERIALIZED (
    SELECT run.id
    FROM jobctl.job_runs AS run
    WHERE run.status = ANY ($1::text[])
        AND run.finished_at < now() - make_interval(secs => $2::float8)
        AND (run.finished_at, run.id)
            > (coalesce($3::timestamptz, '-infinity'), coalesce($4::bigint, 0))
    ORDER BY run.finished_at, run.id
    LIMIT $5::bigint
    FOR UPDATE SKIP LOCKED
),
deleted AS (
    DELETE FROM jobctl.job_runs AS run
    USING old
    WHERE run.id = old.id
        AND run.status = ANY ($1::text[])
        AND run.finished_at < now() - make_interval(secs => $2::float8)
    RETURNING
        run.id,
        run.status,
        run.finished_at,
        CASE WHEN $8::boolean THEN to_jsonb(run) - 'payload_bytes' END AS columns
),
trail AS (
    INSERT INTO jobctl.job_events (action, host_user, reason, detail)
    SELECT
        'prune',
        $6::text,
        $7::text,
        string_agg(counted.runs || ' ' || counted.status, ', ' ORDER BY counted.status)
    FROM (
        SELECT deleted.status, count(*) AS runs
        FROM deleted
        GROUP BY deleted.status
    ) AS counted
    HAVING count(*) > 0
),
forgotten AS (
    DELETE FROM jobctl.job_events AS event
    WHERE event.id = ANY (ARRAY(
        SELECT old.id
        FROM jobctl.job_events AS old
        WHERE old.recorded_at
                < now() - greatest(make_interval(secs => $2::float8), interval '90 days')
            AND 'dead' = ANY ($1::text[])
            -- `jobs` names the person that paused a job.
            AND NOT EXISTS (
                SELECT FROM jobctl.job_definitions AS definition
                WHERE definition.name = old.job
                    AND definition.paused_at <= old.recorded_at
                    AND old.action = 'pause'
            )
        ORDER BY old.id
        LIMIT $5::bigint
    ))
)
SELECT
    deleted.id,
    deleted.status,
    deleted.finished_at,
    CASE WHEN $8::boolean
        THEN (
            deleted.columns || jsonb_build_object(
                'history',
                -- The statement still sees what the trigger deletes.
                ARRAY(
                    SELECT to_jsonb(ended) - 'run_id'
                    FROM jobctl.job_attempts AS ended
                    WHERE ended.run_id = deleted.id
                    ORDER BY ended.attempt
                )
            )
        )::text
    END AS json
FROM deleted
ORDER BY deleted.finished_at, deleted.id
