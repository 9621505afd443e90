-- Lists the jobs that follow others, and the times for which a tick must call enqueue_following.
-- Zero rows: no job has to follow a run now. An empty `job_type`: the definition was deleted. A
-- NULL time: the followed runs have no scheduled time.
SELECT
    following.definition_id,
    coalesce(following.job_type, '') AS job_type,
    following.scheduled_for
FROM jobctl.following_jobs AS following
ORDER BY following.scheduled_for, following.definition_id
