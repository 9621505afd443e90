-- Lists the wrong names in definitions: hooks and predecessors (`after`) of enabled definitions
-- that name a job without a definition, and hooks of definitions that are hooks themselves.
-- A row per name. `served`: a job whose hook the definition is.
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
    SELECT 'after', unnest(definition.after)
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
