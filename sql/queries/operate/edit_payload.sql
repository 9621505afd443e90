-- Replaces the payload of blocked, queued, failed or dead runs. Only the schema's owner has the
-- privilege for this, because a payload can contain a command.
-- $1  ids, locked by edit.sql    $2  payload    $3  host_user    $4  reason, for the trail
-- $5  operation. It can't be undone: the event does not contain the old payload, because viewers
--     may read events.
-- One row: true. Raises an error if not all of the runs were written.
WITH edited AS (
    UPDATE jobctl.job_runs AS run
    SET
        payload = $2::text::jsonb,
        updated_at = now()
    WHERE run.id = ANY ($1::bigint[])
        AND run.status IN ('blocked', 'queued', 'failed', 'dead')
    RETURNING run.id, run.job_type
),
trail AS (
    INSERT INTO jobctl.job_events (action, run_id, job, host_user, reason, detail, operation)
    SELECT 'edit', edited.id, edited.job_type, $3::text, $4::text, 'payload', $5::text
    FROM edited
)
SELECT jobctl.require_written(
    'job_runs',
    chosen => cardinality($1::bigint[]),
    written => count(*)
) AS is_written
FROM edited
