-- Reads the states of the given runs. Only runs that the login may see.
-- $1  ids
-- A row per run.
SELECT
    state.id,
    state.job,
    state.status,
    state.attempts,
    state.error_type,
    state.exit_code,
    state.signal,
    state.stuck
FROM jobctl.run_states($1::bigint[]) AS state
