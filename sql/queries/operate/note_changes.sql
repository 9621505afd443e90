-- Writes changes of definitions to the trail.
-- $1  host_user    $2  reason; then arrays of equal length, one element a definition:
-- $3  actions    $4  jobs    $5  details
INSERT INTO jobctl.job_events (action, job, host_user, reason, detail)
SELECT
    changed.action,
    changed.job,
    $1::text AS host_user,
    $2::text AS reason,
    -- 1000 is the limit of the constraint texts_are_short.
    CASE
        WHEN length(changed.detail) > 1000 THEN left(changed.detail, 999) || '…'
        ELSE changed.detail
    END AS detail
FROM unnest($3::text[], $4::text[], $5::text[]) WITH ORDINALITY
    AS changed (action, job, detail, place)
ORDER BY changed.place
