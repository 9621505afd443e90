-- Returns why a role may not enqueue a run of a definition: the SQLSTATE and the text, or two NULLs
-- if it may. Internal: only jobctl calls it.
--
--   definition    only NULLs: there is no such definition
--   exceeded      the limit that the run exceeds, see exceeded_limit; NULL: none
--   key           of the run; the prefix jobctl-hook- marks the run of a hook
CREATE OR REPLACE FUNCTION jobctl.enqueue_refusal(
    job text,
    definition jobctl.job_definitions,
    exceeded text,
    key text,
    caller name,
    OUT code text,
    OUT reason text
)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    is_by_owner boolean;
    is_of_hook boolean;
    only_ends_enqueue boolean;
BEGIN
    IF definition.id IS NULL THEN
        code := 'JC003';
        reason := format('no definition `%s`', job);
        RETURN;
    END IF;
    IF NOT definition.enabled THEN
        -- A disabled definition takes runs only from the schema's owner. enqueue_hooks also calls
        -- as the owner, but must not enqueue here; the prefix marks the keys of its runs.
        is_by_owner := pg_has_role(caller, CURRENT_USER, 'USAGE') IS TRUE;
        is_of_hook := coalesce(key ~ '^jobctl-hook-', false);
        IF is_of_hook OR NOT is_by_owner THEN
            code := '55000';
            reason := format('definition `%s` is disabled and takes no new runs', job);
            RETURN;
        END IF;
    END IF;
    -- Without a list of enqueuers, only ends of runs enqueue a hook. Otherwise any enqueuer could
    -- forge alerts, and use up the rate of the real ones. `apply` rejects hooks that have hooks, so
    -- a definition with hooks needs no call of is_hook.
    only_ends_enqueue := definition.enqueuers IS NULL
        AND NOT definition.has_hooks
        AND jobctl.is_hook(job);
    -- The schema's owner is an operator, too, so enqueue_hooks may enqueue.
    IF (exceeded IS NULL AND definition.enqueuers IS NULL AND NOT only_ends_enqueue)
        OR jobctl.is_operator(caller)
    THEN
        RETURN;
    ELSIF only_ends_enqueue THEN
        code := '42501';
        reason := format(
            'definition `%s` is a hook, so only ends of runs enqueue it, unless its '
            'enqueuers name role `%s`',
            job,
            caller
        );
    ELSIF definition.enqueuers IS NOT NULL AND NOT EXISTS (
        SELECT FROM unnest(definition.enqueuers) AS enqueuer
        WHERE pg_has_role(caller, to_regrole(quote_ident(enqueuer)), 'USAGE')
    ) THEN
        code := '42501';
        reason := format('role `%s` is not among the enqueuers of definition `%s`', caller, job);
    ELSIF exceeded IS NOT NULL THEN
        code := '42501';
        reason := format(
            '%s exceeds the limit of definition `%s`; its enqueue_may_set does not allow '
            'that',
            exceeded,
            job
        );
    END IF;
END
$$;
