-- The jobs with `after`, and the scheduled times, for which a tick must call enqueue_following:
-- - A row of job_predecessors is new. If each job in `after` now has a run for the time, the call
--   enqueues a run.
-- - The rows of a time are a week old. Some job in `after` will have no run for that time any more,
--   so the call deletes the rows.
-- `job_type` is NULL if the definition was deleted. Then the call deletes its rows.
CREATE OR REPLACE VIEW jobctl.following_jobs AS
SELECT DISTINCT
    noted.definition_id,
    definition.name AS job_type,
    noted.scheduled_for
FROM jobctl.job_predecessors AS noted
LEFT JOIN jobctl.job_definitions AS definition ON definition.id = noted.definition_id
WHERE noted.is_new
    OR (noted.scheduled_for IS NOT NULL AND noted.noted_at <= now() - interval '7 days');
