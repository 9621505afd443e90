-- running, lease expired -> cancelled if an operator asked for that or a newer run took the live
-- key, else dead if no attempt is left, else failed.
-- $1  ids    $2  attempts    $3  next_attempt_in, seconds    $4  error
-- A row per recovered run. A worker that renewed its lease in time keeps its run.
WITH free AS MATERIALIZED (
    SELECT
        run.id,
        run.locked_by,
        run.attempts,
        run.started_at,
        run.locked_until,
        run.live_output,
        lost.next_attempt_in
    FROM jobctl.job_runs AS run
    JOIN unnest($1::bigint[], $2::integer[], $3::float8[]) AS lost (id, attempt, next_attempt_in)
        ON lost.id = run.id
        AND lost.attempt = run.attempts
    WHERE run.status = 'running'
    FOR NO KEY UPDATE OF run SKIP LOCKED
),
asked AS (
    SELECT
        array_agg(free.id) AS ids,
        array_agg(free.locked_by) AS workers,
        array_agg(free.attempts) AS attempts,
        array_agg(free.started_at) AS claim_times,
        array_agg(free.next_attempt_in) AS next_attempt_in,
        array_agg($4::text) AS errors,
        array_agg(free.live_output) AS outputs,
        array_agg(extract(epoch FROM now() - coalesce(free.started_at, free.locked_until))::float8)
            AS started_ago
    FROM free
)
SELECT recovered.id, recovered.status, recovered.expires_first
FROM asked
CROSS JOIN LATERAL jobctl.end_runs(
    way => 'lost',
    runs => asked.ids,
    workers => asked.workers,
    attempt_numbers => asked.attempts,
    claim_times => asked.claim_times,
    next_attempt_in => asked.next_attempt_in,
    errors => asked.errors,
    outputs => asked.outputs,
    started_ago => asked.started_ago
) AS ended
CROSS JOIN LATERAL unnest(ended.ids, ended.statuses, ended.expires_first)
    AS recovered (id, status, expires_first)
