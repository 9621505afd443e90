-- Accepts a restored database: ticks that remember a newer one start runs again. The ids of runs
-- that were enqueued since the backup must not come again, because keys contain them, such as
-- jobctl-run-17, and others than this database have seen these. So the sequence goes on by a
-- million, or a tenth if that is more. Only the owner of the schema may do that.
-- $1  host_user    $2  reason
-- Returns whether a tick had noticed the restore, and whether the sequence went on.
WITH event AS (
    INSERT INTO jobctl.job_events (action, host_user, reason)
    VALUES ('accept-restore', $1::text, $2::text)
)
SELECT
    EXISTS (SELECT FROM jobctl.unaccepted_restores) AS was_noticed,
    CASE
        WHEN has_sequence_privilege('jobctl.job_runs_id_seq', 'UPDATE')
            THEN setval(
                'jobctl.job_runs_id_seq',
                nextval('jobctl.job_runs_id_seq') + greatest(
                    1000000,
                    (SELECT max(run.id) / 10 FROM jobctl.job_runs AS run)
                )
            ) IS NOT NULL
        ELSE false
    END AS skips_ids
