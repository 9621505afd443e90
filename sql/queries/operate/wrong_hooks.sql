-- Lists hooks of enabled definitions that name a job without a definition or with pass_result, and
-- hooks of definitions that are hooks themselves.
-- A row per such key; `served` is a job whose hook the definition is.
SELECT
    definition.name AS job,
    hook.key,
    hook.job AS hook,
    served.name AS served,
    coalesce(named.pass_result, false) AS passes_result
FROM jobctl.job_definitions AS definition
CROSS JOIN LATERAL (VALUES
    ('on_dead', definition.on_dead),
    ('on_success', definition.on_success),
    ('on_end', definition.on_end)
) AS hook (key, job)
LEFT JOIN jobctl.job_definitions AS named ON named.name = hook.job
LEFT JOIN LATERAL (
    SELECT other.name
    FROM jobctl.job_definitions AS other
    WHERE other.has_hooks
        AND definition.name IN (other.on_dead, other.on_success, other.on_end)
    ORDER BY other.name
    LIMIT 1
) AS served ON true
WHERE definition.has_hooks
    AND hook.job IS NOT NULL
    AND (
        definition.enabled AND coalesce(named.pass_result, true)
        OR served.name IS NOT NULL
    )
ORDER BY definition.name, hook.key
