-- Returns which value of a run to enqueue exceeds the limit of the definition, although
-- enqueue_may_set does not allow that: `queue`, `priority`, `max_attempts`, `backoff` or `timeout`.
-- Returns NULL if no value does. Internal: only jobctl calls it.
--
-- Every other queue or backoff exceeds the limit, and every smaller number of priority, because
-- such a run starts earlier. An http call whose definition has no timeout ends after 30 seconds, so
-- that is its limit.
--
-- Has no SET clause, so that the planner can inline it, see wrong_value.
CREATE OR REPLACE FUNCTION jobctl.exceeded_limit(
    definition jobctl.job_definitions,
    queue text,
    priority integer,
    max_attempts integer,
    timeout interval,
    backoff text
)
RETURNS text
LANGUAGE sql
STABLE
AS $$
    SELECT CASE
        WHEN queue <> definition.queue AND 'queue' <> ALL (definition.enqueue_may_set)
            THEN 'queue'
        WHEN priority < definition.priority AND 'priority' <> ALL (definition.enqueue_may_set)
            THEN 'priority'
        WHEN max_attempts > definition.max_attempts
            AND 'max_attempts' <> ALL (definition.enqueue_may_set)
            THEN 'max_attempts'
        WHEN backoff <> definition.backoff AND 'backoff' <> ALL (definition.enqueue_may_set)
            THEN 'backoff'
        WHEN timeout IS NOT NULL
            AND 'timeout' <> ALL (definition.enqueue_may_set)
            AND timeout > coalesce(
                definition.timeout,
                (definition.action ->> 'timeout')::interval,
                CASE definition.kind WHEN 'http' THEN interval '30 seconds' END
            )
            THEN 'timeout'
    END
$$;
