-- Accepts a restored database: ticks that remember a newer one start runs again. The ids of runs
-- that were enqueued since the backup must not come again, because keys contain them, such as
-- jobctl-run-17, which HTTP receivers and hosts have seen. So the sequence goes on by a
-- million, or a tenth if that is more. Only the owner of the schema may do that.
-- $1  host_user    $2  reason    $3  unnoticed: accept it even if no tick has noticed the restore
-- Returns how many ids must be skipped, and whether they are. Zero rows: no tick has noticed a
-- restore that is not accepted.
WITH accepted AS (
    INSERT INTO jobctl.job_events (action, host_user, reason)
    SELECT 'accept-restore', $1::text, $2::text
    WHERE $3::boolean OR EXISTS (SELECT FROM jobctl.unaccepted_restores)
    RETURNING action
)
SELECT
    skipped.ids AS skipped,
    CASE
        WHEN has_sequence_privilege('jobctl.job_runs_id_seq', 'UPDATE')
            THEN setval(
                'jobctl.job_runs_id_seq',
                greatest(nextval('jobctl.job_runs_id_seq'), newest.id) + skipped.ids
            ) IS NOT NULL
        ELSE false
    END AS is_done
FROM accepted
CROSS JOIN (
    SELECT coalesce(max(run.id), 0) AS id
    FROM jobctl.job_runs AS run
) AS newest
CROSS JOIN LATERAL (SELECT greatest(1000000, newest.id / 10) AS ids) AS skipped
