-- Jobs that follow others, and the times for which they are due, see enqueue_following.sql.
-- Zero rows: no job has to follow a run now.
SELECT
    following.definition_id,
    coalesce(following.job_type, '') AS job_type,
    following.scheduled_for
FROM jobctl.following_jobs AS following
ORDER BY following.scheduled_for, following.definition_id
