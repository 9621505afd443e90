-- Enqueues the hooks of runs that this transaction has ended: the jobs that their definitions name
-- in on_dead, on_success and on_end. Returns whether it enqueued any. Internal: only jobctl calls
-- it.
--
-- end_runs calls it after it has written the history, because a hook's payload names the last
-- attempt. A hook has no hooks of its own. If a hook can't be enqueued, the function only raises a
-- WARNING, which ticks log: the end of the run matters more.
--
-- The key of a hook's run contains the hook, the run and the time of its end. try_enqueue reserves
-- the prefix jobctl-hook-. So no enqueuer can use such a key, or make this function wait for its
-- own transaction.
--
-- SECURITY DEFINER: a role that may end runs may not enqueue. It can only choose the error of a run
-- and end it, which enqueues the hooks of that run with this text.
CREATE OR REPLACE FUNCTION jobctl.enqueue_hooks(runs bigint[])
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $$
DECLARE
    hooked record;
    refusal text;
    hook_run bigint;
    enqueues boolean := false;
BEGIN
    IF NOT EXISTS (
        SELECT FROM jobctl.job_definitions AS definition
        WHERE definition.has_hooks
    ) THEN
        RETURN false;
    END IF;
    FOR hooked IN
        SELECT
            hook.key AS hook_key,
            hook.job AS hook_job,
            run.id,
            run.job_type AS job,
            run.idempotency_key AS key,
            run.status,
            run.attempts,
            run.share,
            run.traceparent,
            last.worker,
            CASE WHEN death.is_by_attempt THEN last.incident END AS incident,
            CASE WHEN run.status <> 'succeeded' THEN run.error_type END AS error_type,
            CASE WHEN run.status <> 'succeeded' THEN run.last_error END AS error,
            CASE WHEN death.is_by_attempt THEN last.cause END AS cause,
            CASE WHEN death.is_by_attempt THEN jobctl.last_line(last.output) END AS last_line,
            CASE run.status
                WHEN 'succeeded' THEN 'succeeded'
                WHEN 'cancelled' THEN 'was cancelled'
                ELSE 'is dead after ' || run.attempts
                    || CASE run.attempts WHEN 1 THEN ' attempt' ELSE ' attempts' END
            END AS ending
        FROM unnest(runs) AS ended (id)
        JOIN jobctl.job_runs AS run ON run.id = ended.id
        LEFT JOIN jobctl.job_attempts AS last
            ON last.run_id = run.id
            AND last.attempt = run.attempts
        JOIN jobctl.job_definitions AS definition ON definition.name = run.job_type
        CROSS JOIN LATERAL (
            SELECT
                run.status = 'dead'
                -- If the error types differ, the run died after its last attempt, by another cause.
                AND last.error_type IS NOT DISTINCT FROM run.error_type AS is_by_attempt
        ) AS death
        CROSS JOIN LATERAL (VALUES
            ('on_dead', definition.on_dead, run.status = 'dead'),
            ('on_success', definition.on_success, run.status = 'succeeded'),
            ('on_end', definition.on_end, true)
        ) AS hook (key, job, is_due)
        WHERE definition.has_hooks
            AND hook.job IS NOT NULL
            AND hook.is_due
            -- Only runs that ended in this transaction, and that are not runs of hooks.
            AND run.finished_at = now()
            AND NOT jobctl.is_hook(definition.name)
        ORDER BY run.id, hook.key
    LOOP
        BEGIN
            SELECT enqueued.id, enqueued.reason INTO hook_run, refusal
            FROM jobctl.try_enqueue(
                job => hooked.hook_job,
                payload => jsonb_build_object(
                    'text', format('run %s of job %s %s', hooked.id, hooked.job, hooked.ending)
                        || coalesce(': ' || hooked.error, '')
                        || coalesce(': ' || hooked.last_line, ''),
                    'run', hooked.id,
                    'job', hooked.job,
                    'key', hooked.key,
                    'status', hooked.status,
                    'attempts', hooked.attempts,
                    'worker', hooked.worker,
                    'share', hooked.share,
                    'incident', hooked.incident,
                    'error_type', hooked.error_type,
                    'error', hooked.error,
                    'cause', hooked.cause,
                    'last_line', hooked.last_line
                ),
                key => format(
                    'jobctl-hook-%s-%s-%s',
                    hooked.hook_key,
                    hooked.id,
                    (extract(epoch FROM now()) * 1000000)::bigint
                ),
                run_at => NULL,
                run_in => NULL,
                priority => NULL,
                queue => NULL,
                max_attempts => NULL,
                timeout => NULL,
                backoff => NULL,
                key_scope => 'live',
                traceparent => hooked.traceparent
            ) AS enqueued;
            -- With pass_result, the hook reads the output of the run's last attempt.
            INSERT INTO jobctl.job_dependencies (run_id, after_id, rule, state, attempt)
            SELECT run.id, hooked.id, 'any_end', 'met', hooked.attempts
            FROM jobctl.job_runs AS run
            JOIN jobctl.job_definitions AS definition ON definition.name = run.job_type
            WHERE run.id = hook_run
                AND definition.pass_result
            ON CONFLICT DO NOTHING;
        EXCEPTION
            -- Raise: the caller repeats the whole transaction.
            WHEN deadlock_detected OR serialization_failure THEN
                RAISE;
            WHEN OTHERS THEN
                refusal := SQLERRM;
        END;
        IF refusal IS NOT NULL THEN
            RAISE WARNING 'jobctl: % of run % is not enqueued: %',
                hooked.hook_key, hooked.id, refusal;
        END IF;
        enqueues := enqueues OR refusal IS NULL;
    END LOOP;
    RETURN enqueues;
END
$$;
