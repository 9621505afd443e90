-- Records an attempt whose lease was lost, unless the history has it already.
-- $1  worker    $2  run id    $3  attempt    $4  error    $5  seconds since start
-- Zero rows: the attempt is recorded, or the run is deleted or locked by another session. Also zero
-- rows if a failover lost the claim and a later claim has the same number: the later claim writes
-- the history.
INSERT INTO jobctl.job_attempts (
    run_id,
    attempt,
    worker,
    started_at,
    finished_at,
    outcome,
    error_type,
    error
)
SELECT
    run.id,
    $3::integer,
    $1::text,
    now() - make_interval(secs => $5::float8),
    now(),
    'lease_expired',
    'lease_expired',
    $4::text
FROM jobctl.job_runs AS run
WHERE run.id = $2::bigint
    AND (run.attempts > $3::integer OR run.attempts = $3::integer AND run.status <> 'running')
-- The lock keeps the run from being deleted meanwhile.
FOR KEY SHARE SKIP LOCKED
ON CONFLICT (run_id, attempt) DO NOTHING
