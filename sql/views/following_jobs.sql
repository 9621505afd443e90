-- The jobs with `after` and the times for which a tick has something to do, see enqueue_following:
-- a row is new, or the rows of a scheduled time are a week old.
CREATE OR REPLACE VIEW jobctl.following_jobs AS
SELECT DISTINCT
    noted.definition_id,
    definition.name AS job_type,
    noted.scheduled_for
FROM jobctl.job_predecessors AS noted
LEFT JOIN jobctl.job_definitions AS definition ON definition.id = noted.definition_id
WHERE noted.is_new
    OR (noted.scheduled_for IS NOT NULL AND noted.noted_at <= now() - interval '7 days');
