-- Finds attempts that an earlier statement has recorded, although its answer was lost.
-- $1  worker; the others are arrays of equal length, one element an attempt:
-- $2  ids         $3  attempts    $4  statuses
-- $5  outcomes    $6  errors      $7  details of errors
-- $8  claimed_at, times of the claims
-- A row per recorded attempt. A missing attempt was not recorded: its lease is lost.
--
-- An attempt counts as recorded if the history has it with the same worker and result: a worker
-- that took over the lease has written another one. A worker may claim the same attempt number
-- twice, see end_runs.sql. The history has only the last of these claims. So the time of the claim
-- must be that of the run, until a later attempt begins.
SELECT
    ended.run_id AS id,
    ended.attempt,
    ended.claimed_at,
    -- end_runs may have ended the run, although the tick asked for another status.
    CASE
        WHEN run.attempts = ended.attempt AND run.status IN ('dead', 'cancelled') THEN run.status
        ELSE ended.status
    END AS status
FROM unnest(
    $2::bigint[], $3::integer[], $4::text[], $5::text[], $6::text[], $7::text[], $8::timestamptz[]
) AS ended (run_id, attempt, status, outcome, error, detail, claimed_at)
JOIN jobctl.job_runs AS run
    ON run.id = ended.run_id
    AND (run.attempts > ended.attempt OR run.started_at = ended.claimed_at)
JOIN jobctl.job_attempts AS attempt
    ON attempt.run_id = ended.run_id
    AND attempt.attempt = ended.attempt
    AND attempt.worker = $1::text
    AND (
        attempt.outcome = ended.outcome
        -- end_runs records a snooze as a failure if it ends the run.
        OR (attempt.outcome = 'failed' AND ended.outcome = 'snoozed')
    )
    -- end_runs writes the detail to the history if there is one, else the error. A success has
    -- neither, so both sides can be NULL.
    AND attempt.error IS NOT DISTINCT FROM coalesce(ended.detail, ended.error)
