-- Lists the enabled definitions, each with the jobs that it follows and those that it enqueues when
-- its runs end.
SELECT
    definition.name,
    definition.schedule,
    definition.time_zone,
    coalesce(definition.after, '{}') AS after,
    array_remove(ARRAY[definition.on_dead, definition.on_success, definition.on_end], NULL)
        AS hooks
FROM jobctl.job_definitions AS definition
WHERE definition.enabled
ORDER BY definition.name
