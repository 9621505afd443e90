-- Deletes everything of a load test except its runs: workers, figures, events and, at the end, the
-- definition.
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
