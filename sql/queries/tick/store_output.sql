-- Stores what running jobs have printed so far, so that people can read it.
-- $1  worker    $2  ids    $3  attempts    $4  claimed_at, times of the claims    $5  outputs
-- A row per stored output. A missing run is locked by another session, or has lost its lease.
WITH lockable AS MATERIALIZED (
    SELECT run.id
    FROM jobctl.job_runs AS run
    WHERE run.id = ANY ($2::bigint[])
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE jobctl.job_runs AS run
SET live_output = mine.output
FROM unnest($2::bigint[], $3::integer[], $4::timestamptz[], $5::text[])
    AS mine (id, attempt, claimed_at, output)
JOIN lockable ON lockable.id = mine.id
WHERE run.id = mine.id
    -- `coalesce` keeps the planner from the index job_runs_running: it may have many entries of
    -- ended runs, see end_runs.sql.
    AND coalesce(
        run.status = 'running'
            AND run.locked_by = $1::text
            AND run.attempts = mine.attempt
            AND run.started_at = mine.claimed_at,
        false
    )
RETURNING run.id
