-- Returns the answer to an enqueue whose key already has a run, with the columns of try_enqueue:
-- the existing run, or a refusal. No row: the key is free meanwhile, or the run can be replaced, so
-- the caller tries again. If a run of another job has the key, the answer does not depend on its
-- payload. Internal: only jobctl calls it.
--
-- The callers use it in a statement after their INSERT, because an INSERT can't see the run that it
-- conflicts with. Has no SET clause, so that the planner can inline it, see wrong_value.
CREATE OR REPLACE FUNCTION jobctl.key_conflict(
    job text,
    payload jsonb,
    key text,
    key_scope text,
    on_conflict text,
    run_at timestamptz
)
RETURNS TABLE (
    id bigint,
    result text,
    code text,
    reason text,
    status text,
    due_at timestamptz
)
LANGUAGE sql
STABLE
AS $$
    SELECT
        CASE WHEN found.outcome = 'existing' THEN run.id END AS id,
        CASE WHEN found.outcome = 'existing' THEN found.outcome END AS result,
        CASE WHEN found.outcome <> 'existing' THEN found.outcome END AS code,
        CASE found.outcome
            WHEN 'JC009' THEN format('key `%s` already has a run', key)
            WHEN 'JC004' THEN format('key `%s` belongs to a run with another job or payload', key)
        END AS reason,
        CASE WHEN found.outcome = 'existing' THEN run.status END AS status,
        CASE
            WHEN found.outcome = 'existing'
                AND run.status = 'queued'
                -- Not now(), which is the start of this transaction: a concurrent enqueue may have
                -- begun later.
                AND run.run_at > greatest(key_conflict.run_at, clock_timestamp())
                THEN run.run_at
        END AS due_at
    FROM jobctl.job_runs AS run
    CROSS JOIN LATERAL (
        -- `existing`, the SQLSTATE of a refusal, or NULL: the run can be replaced.
        SELECT CASE
            WHEN key_conflict.on_conflict = 'error' THEN 'JC009'
            WHEN run.job_type <> job THEN 'JC004'
            WHEN key_conflict.on_conflict = 'replace' THEN NULL
            WHEN run.payload = key_conflict.payload THEN 'existing'
            ELSE 'JC004'
        END
    ) AS found (outcome)
    WHERE run.idempotency_key = key
        AND run.key_scope = key_conflict.key_scope
        -- The condition of the index job_runs_key: other runs do not have their keys any more.
        AND (
            run.key_scope = 'retained'
            OR (run.key_scope = 'live' AND run.status IN ('blocked', 'queued', 'running', 'failed'))
        )
        AND found.outcome IS NOT NULL
$$;
