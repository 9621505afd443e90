-- The runs that wait for a run, or for which it waits; or waited, if the waiting one still exists.
-- $1  id    $2  followers: else predecessors
SELECT
    CASE
        WHEN $2::boolean THEN ARRAY(
            SELECT waits.run_id
            FROM jobctl.job_dependencies AS waits
            WHERE waits.after_id = $1::bigint
        )
        ELSE ARRAY(
            SELECT waits.after_id
            FROM jobctl.job_dependencies AS waits
            WHERE waits.run_id = $1::bigint
        )
    END AS ids
