-- Lists the wrong names in the hooks and predecessors (`after`) of definitions: a name without a
-- definition, if the definition that names it is enabled, and every hook of a definition that is
-- itself a hook.
-- A row per wrong name (`hook`). `served`: a job whose hook the definition itself is; NULL: it is
-- the hook of no job.
SELECT
    definition.name AS job,
    named.key,
    named.job AS hook,
    served.name AS served
FROM jobctl.job_definitions AS definition
CROSS JOIN LATERAL (
    SELECT hook.key, hook.job
    FROM (VALUES
        ('on_dead', definition.on_dead),
        ('on_success', definition.on_success),
        ('on_end', definition.on_end)
    ) AS hook (key, job)
    UNION ALL
    SELECT 'after' AS key, unnest(definition.after) AS job
) AS named
LEFT JOIN LATERAL (
    SELECT other.name
    FROM jobctl.job_definitions AS other
    WHERE other.has_hooks
        AND named.key <> 'after'
        AND definition.name IN (other.on_dead, other.on_success, other.on_end)
    ORDER BY other.name
    LIMIT 1
) AS served ON true
WHERE (definition.has_hooks OR definition.after IS NOT NULL)
    AND named.job IS NOT NULL
    AND (
        definition.enabled
            AND NOT EXISTS (
                SELECT FROM jobctl.job_definitions AS other
                WHERE other.name = named.job
            )
        OR served.name IS NOT NULL
    )
ORDER BY definition.name, named.key, named.job
