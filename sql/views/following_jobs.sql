-- The jobs with `after` and the times for which a tick has something to do, see enqueue_following:
-- a row is new, every job in `after` has a run (`is_complete`), the definition is gone, paused,
-- disabled or follows nothing now (`is_over`), or the rows of a scheduled time are a week old.
-- `ids` are those of job_predecessors.
CREATE OR REPLACE VIEW jobctl.following_jobs AS
SELECT
    noted.definition_id,
    following.name AS job_type,
    noted.scheduled_for,
    noted.ids,
    coalesce(following.follows AND following.after <@ noted.jobs, false) AS is_complete,
    following.follows IS NOT TRUE AS is_over
FROM (
    SELECT
        predecessor.definition_id,
        predecessor.scheduled_for,
        array_agg(predecessor.id) AS ids,
        array_agg(predecessor.job_type) AS jobs,
        min(predecessor.noted_at) AS noted_at,
        bool_or(predecessor.is_new) AS has_new
    FROM jobctl.job_predecessors AS predecessor
    GROUP BY predecessor.definition_id, predecessor.scheduled_for
) AS noted
LEFT JOIN (
    SELECT
        definition.id,
        definition.name,
        definition.after,
        definition.enabled AND definition.paused_at IS NULL AND definition.after IS NOT NULL
            AS follows
    FROM jobctl.job_definitions AS definition
) AS following ON following.id = noted.definition_id
WHERE noted.has_new
    OR following.follows IS NOT TRUE
    OR following.after <@ noted.jobs
    OR (noted.scheduled_for IS NOT NULL AND noted.noted_at <= now() - interval '7 days');
