-- For a monitor: sees the state of runs and schedules, but no payload, no command and no output.
GRANT USAGE ON SCHEMA jobctl TO {role};
GRANT SELECT ON
    jobctl.awaited_runs,
    jobctl.current_holds,
    jobctl.job_dependencies,
    jobctl.daily_figures,
    jobctl.dead_runs,
    jobctl.failing_jobs,
    jobctl.job_figures,
    jobctl.job_holds,
    jobctl.long_running_runs,
    jobctl.job_workers,
    jobctl.job_events,
    jobctl.leases,
    jobctl.pending_runs,
    jobctl.schema_migrations,
    jobctl.seen_workers,
    jobctl.unaccepted_restores
    TO {role};
GRANT SELECT (
    id,
    job_type,
    queue,
    share,
    status,
    run_at,
    attempts,
    max_attempts,
    uncounted_attempts,
    snoozed_attempts,
    locked_by,
    locked_until,
    cancel_requested_at,
    expires_at,
    last_error,
    error_type,
    failed_at,
    started_at,
    finished_at,
    settled_at,
    created_at,
    updated_at
) ON jobctl.job_runs TO {role};
GRANT SELECT (
    name,
    kind,
    queue,
    schedule,
    time_zone,
    overlap,
    timeout,
    rate_interval,
    max_age,
    max_lag,
    alert_after,
    usual,
    usual_least,
    usual_most,
    keep,
    keep_dead,
    created_at,
    enabled,
    paused_at,
    next_run_at,
    skipped_fires
) ON jobctl.job_definitions TO {role};
GRANT SELECT (
    run_id,
    attempt,
    worker,
    started_at,
    finished_at,
    outcome,
    error_type,
    exit_code,
    signal,
    http_status,
    cause,
    incident
) ON jobctl.job_attempts TO {role};
GRANT SELECT (run_id, attempt, recorded_at, completed_at) ON jobctl.job_effects TO {role};
GRANT EXECUTE ON FUNCTION
    jobctl.is_running,
    jobctl.last_line,
    jobctl.own_words,
    jobctl.record_alerts,
    jobctl.run_time_trend,
    jobctl.run_states,
    jobctl.serving,
    jobctl.stuck_predecessor,
    jobctl.usual
    TO {role};
