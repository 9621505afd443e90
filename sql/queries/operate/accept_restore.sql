-- Accepts a database that was restored from a backup. Ticks had stopped starting runs, because
-- their hosts remember a newer database. Now ticks start runs again.
-- $1  host_user    $2  reason    $3  unnoticed: accept it even if no tick has noticed the restore
-- One row: how many ids new runs must skip (`skipped`), and whether this login could make the
-- sequence skip them (`ids_are_raised`). Zero rows: no tick has noticed a restore that is not
-- accepted.
--
-- New runs must not get the ids of runs that were enqueued after the backup, because keys contain
-- ids: HTTP receivers and hosts have seen a key such as jobctl-run-17. So the sequence skips a
-- million ids, or a tenth of the newest id if that is more. Only the owner of the schema may set
-- it.
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
    END AS ids_are_raised
FROM accepted
CROSS JOIN (
    SELECT coalesce(max(run.id), 0) AS id
    FROM jobctl.job_runs AS run
) AS newest
CROSS JOIN LATERAL (SELECT greatest(1000000, newest.id / 10) AS ids) AS skipped
