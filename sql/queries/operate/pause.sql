-- Pauses the schedule of a definition, and those that applications made for it. Runs can still be
-- enqueued, and waiting runs still start.
-- $1  name    $2  host_user    $3  reason, for the trail
-- One row: whether the pause has an effect, because the definition has a schedule, follows other
-- jobs, or has schedules of applications (`has_schedule`). Zero rows: no such definition.
WITH asked AS MATERIALIZED (
    SELECT definition.id
    FROM jobctl.job_definitions AS definition
    WHERE definition.name = $1::text
    FOR NO KEY UPDATE
),
paused AS (
    UPDATE jobctl.job_definitions AS definition
    SET
        paused_at = coalesce(definition.paused_at, now()),
        updated_at = now()
    FROM asked
    WHERE definition.id = asked.id
    RETURNING
        definition.name,
        definition.schedule,
        definition.after,
        -- The schedules of applications, such as: 2 of shop, 1 of web. NULL: there is none.
        (
            SELECT string_agg(format('%s of %s', own.schedules, own.owner), ', ' ORDER BY own.owner)
            FROM (
                SELECT schedule.owner, count(*) AS schedules
                FROM jobctl.job_schedules AS schedule
                WHERE schedule.definition_id = definition.id
                GROUP BY schedule.owner
            ) AS own
        ) AS schedules
),
trail AS (
    INSERT INTO jobctl.job_events (action, job, host_user, reason, detail)
    SELECT
        'pause' AS action,
        paused.name,
        $2::text AS host_user,
        $3::text AS reason,
        -- 1000 is the limit of the constraint texts_are_short.
        left('schedules of applications: ' || paused.schedules, 1000) AS detail
    FROM paused
)
SELECT
    num_nonnulls(paused.schedule, paused.after, paused.schedules) > 0 AS has_schedule
FROM asked
CROSS JOIN jobctl.require_written(
    'job_definitions',
    chosen => (SELECT count(*) FROM asked),
    written => (SELECT count(*) FROM paused)
)
LEFT JOIN paused ON true
