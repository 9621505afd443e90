-- For an operator: reads everything, retries, cancels, edits, settles, pauses and holds, and
-- deletes old runs. Only the owner of the schema applies definitions and edits payloads, because
-- both can contain commands.
GRANT USAGE ON SCHEMA jobctl TO {role};
GRANT SELECT ON ALL TABLES IN SCHEMA jobctl TO {role};
GRANT UPDATE (
    status,
    queue,
    priority,
    run_at,
    timeout,
    backoff,
    max_attempts,
    granted_attempts,
    key_scope,
    locked_by,
    locked_until,
    live_output,
    cancel_requested_at,
    expires_at,
    last_error,
    error_type,
    finished_at,
    settled_at,
    updated_at
), DELETE ON jobctl.job_runs TO {role};
GRANT UPDATE (next_run_at, put_off_until, paused_at, resumed_at, updated_at)
    ON jobctl.job_definitions
    TO {role};
-- `retry --force` records the attempt that it takes from a worker.
GRANT INSERT ON jobctl.job_attempts TO {role};
GRANT DELETE ON jobctl.job_workers TO {role};
GRANT INSERT (scope, name, held_until, host_user, reason), DELETE ON jobctl.job_holds TO {role};
-- Not recorded_by and recorded_at: their defaults are the login and the time, so that no event can
-- name another login.
GRANT INSERT (action, run_id, job, host_user, reason, detail, operation, before), DELETE
    ON jobctl.job_events
    TO {role};
-- The effects of `jobctl once`, also to settle them.
GRANT INSERT (key, run_id, attempt), UPDATE (completed_at, result), DELETE
    ON jobctl.job_effects
    TO {role};
GRANT EXECUTE ON FUNCTION
    jobctl.decide_followers,
    jobctl.end_runs,
    jobctl.enqueue,
    jobctl.enqueue_following,
    jobctl.enqueue_runs,
    jobctl.mark_followers,
    jobctl.next_time,
    jobctl.result,
    jobctl.results,
    jobctl.run_states,
    jobctl.schedule,
    jobctl.serving,
    jobctl.stuck_predecessor,
    jobctl.try_enqueue,
    jobctl.unschedule,
    jobctl.usual_run_time,
    jobctl.reopen_dependencies,
    jobctl.require_written,
    jobctl.wait_for,
    jobctl.is_own_effect,
    jobctl.is_running,
    jobctl.last_line,
    jobctl.most_with_lock,
    jobctl.attempt_texts,
    jobctl.record_alerts,
    jobctl.run_time_trend,
    jobctl.may_settle,
    jobctl.definition_keys
    TO {role};
