-- Returns which limit of its definition a run to enqueue exceeds, if enqueue_may_set does not allow
-- that. An http call without its own timeout ends after 30 seconds. No settings, as for
-- wrong_value. Internal: no part of the contract of the schema.
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
