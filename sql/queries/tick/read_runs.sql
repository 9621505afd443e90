-- Reads all columns of these runs that a claim reads; changes nothing. An error does not name the
-- run: try again with fewer runs.
-- $1  run ids
-- Always one row.
SELECT
    sum(octet_length(run.payload::text)) AS payload_bytes,
    sum(octet_length(definition.action::text)) AS action_bytes
FROM jobctl.job_runs AS run
LEFT JOIN jobctl.job_definitions AS definition
    ON definition.name = run.job_type
WHERE run.id = ANY ($1::bigint[])
