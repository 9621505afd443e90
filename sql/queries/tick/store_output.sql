-- running -> running: stores what jobs have printed so far, for people who look.
-- $1  worker    $2  ids    $3  attempts    $4  claimed_at, times of the claims    $5  outputs
-- A row per stored output; the others' rows are locked, or their leases lost.
WITH free AS MATERIALIZED (
    SELECT run.id
    FROM jobctl.job_runs AS run
    WHERE run.id = ANY ($2::bigint[])
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE jobctl.job_runs AS run
SET live_output = mine.output
FROM unnest($2::bigint[], $3::integer[], $4::timestamptz[], $5::text[])
    AS mine (id, attempt, claimed_at, output)
JOIN free ON free.id = mine.id
WHERE run.id = mine.id
    -- `coalesce` as in renew_leases.sql.
    AND coalesce(
        run.status = 'running'
            AND run.locked_by = $1::text
            AND run.attempts = mine.attempt
            AND run.started_at = mine.claimed_at,
        false
    )
RETURNING run.id
