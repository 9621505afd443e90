-- Records attempts whose leases were lost, unless the history has them already.
-- $1  worker; then arrays of equal length, one element an attempt:
-- $2  ids    $3  attempts    $4  started_ago, seconds
-- Nothing is written if the run is deleted or locked by another session. Nor if a failover lost the
-- claim and a later claim has the same number: the later claim writes the history.
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
    lost.attempt,
    $1::text,
    now() - make_interval(secs => lost.started_ago),
    now(),
    'lease_expired',
    'lease_expired',
    'its worker lost the lease and ended it'
FROM unnest($2::bigint[], $3::integer[], $4::float8[]) AS lost (run_id, attempt, started_ago)
JOIN jobctl.job_runs AS run ON run.id = lost.run_id
WHERE run.attempts > lost.attempt OR run.attempts = lost.attempt AND run.status <> 'running'
-- The lock keeps the run from being deleted meanwhile.
FOR KEY SHARE OF run SKIP LOCKED
ON CONFLICT (run_id, attempt) DO NOTHING
