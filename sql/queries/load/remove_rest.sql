-- Deletes the workers, figures and events of a load test. With an id, also deletes its definition,
-- at the end of the test. remove_runs.sql has deleted the runs before.
-- $1  id of the definition; NULL keeps it
WITH worker AS (
    DELETE FROM jobctl.job_workers AS worker
    WHERE worker.worker ~ '^jobctl-load-[0-9]+$'
),
figures AS (
    DELETE FROM jobctl.job_figures AS figures
    WHERE figures.job_type = 'jobctl-load'
),
trail AS (
    DELETE FROM jobctl.job_events AS event
    WHERE event.job = 'jobctl-load'
)
DELETE FROM jobctl.job_definitions AS definition
WHERE definition.id = $1::bigint
