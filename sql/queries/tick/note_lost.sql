-- Writes attempts that have lost their leases to the history, unless it has them already.
-- $1  worker; the others are arrays of equal length, one element an attempt:
-- $2  ids    $3  attempts    $4  started_ago, seconds
-- Skips a run that was deleted or that another session has locked. Also skips a run that is running
-- with this attempt number: a failover lost the claim, a later claim got its number, and that claim
-- will write the history.
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
    $1::text AS worker,
    now() - make_interval(secs => lost.started_ago) AS started_at,
    now() AS finished_at,
    'lease_expired' AS outcome,
    'lease_expired' AS error_type,
    'its worker lost the lease and ended it' AS error
FROM unnest($2::bigint[], $3::integer[], $4::float8[]) AS lost (run_id, attempt, started_ago)
JOIN jobctl.job_runs AS run ON run.id = lost.run_id
WHERE run.attempts > lost.attempt OR run.attempts = lost.attempt AND run.status <> 'running'
-- The lock keeps the run from being deleted meanwhile.
FOR KEY SHARE OF run SKIP LOCKED
ON CONFLICT (run_id, attempt) DO NOTHING
