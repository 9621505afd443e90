-- Counts the running runs of these targets of holds.
-- $1  scopes    $2  names, empty for all; of equal length
SELECT count(*) AS runs
FROM jobctl.job_runs AS run
WHERE run.status = 'running'
    AND EXISTS (
        SELECT FROM unnest($1::text[], $2::text[]) AS target (scope, name)
        WHERE (target.scope, target.name) IN (
            ('all', ''),
            ('queue', run.queue),
            ('job', run.job_type),
            ('worker', run.locked_by)
        )
    )
