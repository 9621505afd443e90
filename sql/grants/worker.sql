-- For a host that runs ticks, and for `jobctl once` in its jobs: changes the status of runs and
-- writes their history. It adds runs only when it fires schedules, when jobs follow others, and as
-- hooks of runs that it ends. It can't change what runs execute. It also can't delete runs: for
-- `tick --prune`, the role needs the right to delete runs and events as well.
GRANT USAGE ON SCHEMA jobctl TO {role};
GRANT SELECT ON ALL TABLES IN SCHEMA jobctl TO {role};
GRANT UPDATE (
    status,
    run_at,
    attempts,
    uncounted_attempts,
    locked_by,
    locked_until,
    live_output,
    last_error,
    error_type,
    failed_at,
    started_at,
    finished_at,
    updated_at
) ON jobctl.job_runs TO {role};
-- A claim locks a definition while it counts the running runs, and then stores how much of the rate
-- is used up. The lock needs the privilege to update a column.
GRANT UPDATE (rate_next_at, last_share, updated_at) ON jobctl.job_definitions TO {role};
-- A claim also locks the slots of locks, and counts the rates of shares.
GRANT UPDATE ON jobctl.job_lock_slots TO {role};
GRANT INSERT, UPDATE, DELETE ON jobctl.job_share_rates TO {role};
GRANT INSERT ON jobctl.job_attempts TO {role};
GRANT INSERT, UPDATE ON jobctl.job_workers TO {role};
-- Leases and results of runs whose rows other sessions have locked.
GRANT INSERT, UPDATE, DELETE ON jobctl.job_locked_runs TO {role};
-- The events that the database was restored, and that `tick --prune` deleted runs.
GRANT INSERT (action, host_user, reason, detail) ON jobctl.job_events TO {role};
-- The effects of `jobctl once`.
GRANT INSERT (key, run_id, attempt), UPDATE (completed_at, result), DELETE
    ON jobctl.job_effects
    TO {role};
GRANT EXECUTE ON FUNCTION
    jobctl.claim_runs,
    jobctl.application_schedule_is_due,
    jobctl.decide_followers,
    jobctl.end_runs,
    jobctl.enqueue_following,
    jobctl.fire,
    jobctl.is_own_effect,
    jobctl.is_running,
    jobctl.last_line,
    jobctl.attempt_texts,
    jobctl.record_alerts,
    jobctl.run_time_trend,
    jobctl.limited_runs,
    jobctl.most_with_lock,
    jobctl.lock_slot,
    jobctl.may_settle,
    jobctl.release_right,
    jobctl.renew_leases,
    jobctl.require_written,
    jobctl.result,
    jobctl.results,
    jobctl.run_states,
    jobctl.serving,
    jobctl.stuck_predecessor,
    jobctl.set_aside_unclaimable,
    jobctl.usual_run_time,
    jobctl.within_locks
    TO {role};
