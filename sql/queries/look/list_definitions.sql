-- Lists the definitions by name: their keys as in the file, their states, and the events that
-- paused or disabled them.
-- $1  name; NULL for all. Schedules of applications are counted only with a name, because there may
--     be many
SELECT
    definition.name AS job_type,
    jobctl.definition_keys(definition)::text AS keys,
    state.state,
    coalesce(CASE WHEN state.state = 'paused' THEN definition.paused_at END, stop.recorded_at)
        AS since_at,
    coalesce(stop.host_user, stop.recorded_by) AS changed_by,
    stop.reason,
    CASE WHEN state.state = 'fires' THEN definition.next_run_at END AS next_run_at,
    definition.skipped_fires,
    (
        SELECT count(*)
        FROM jobctl.job_schedules AS schedule
        WHERE schedule.definition_id = definition.id
            AND $1::text IS NOT NULL
    ) AS application_schedules,
    ARRAY(
        SELECT DISTINCT schedule.owner
        FROM jobctl.job_schedules AS schedule
        WHERE schedule.definition_id = definition.id
            AND $1::text IS NOT NULL
        ORDER BY schedule.owner
    ) AS schedule_owners,
    now() AS now
FROM jobctl.job_definitions AS definition
CROSS JOIN LATERAL (
    SELECT CASE
        WHEN NOT definition.enabled THEN 'disabled'
        WHEN definition.paused_at IS NOT NULL THEN 'paused'
        WHEN definition.after IS NOT NULL
            THEN 'after ' || array_to_string(definition.after, ', ')
        WHEN definition.schedule IS NULL THEN NULL
        ELSE 'fires'
    END AS state
) AS state
-- The event that paused or disabled the definition. An `add` can add a disabled one.
LEFT JOIN LATERAL (
    SELECT event.*
    FROM jobctl.job_events AS event
    WHERE event.run_id IS NULL
        AND event.job = definition.name
        AND CASE state.state
            WHEN 'disabled' THEN event.action IN ('add', 'disable')
            WHEN 'paused' THEN event.action = 'pause'
        END
    ORDER BY event.id DESC
    LIMIT 1
) AS stop ON true
WHERE $1::text IS NULL
    OR definition.name = $1::text
ORDER BY definition.name
