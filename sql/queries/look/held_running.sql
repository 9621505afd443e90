-- Counts the running runs of the targets of holds, and checks that each target is held.
-- $1  scopes    $2  names, arrays of equal length; a name is empty for the scope `all`
-- One row: the number of running runs, and whether all targets are held (`is_held`). If a target is
-- not held, its runs can still start.
SELECT
    (
        SELECT count(*)
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
    ) AS running,
    NOT EXISTS (
        SELECT FROM unnest($1::text[], $2::text[]) AS target (scope, name)
        WHERE NOT EXISTS (
            SELECT FROM jobctl.current_holds AS hold
            WHERE hold.scope = target.scope
                AND hold.name = target.name
        )
    ) AS is_held
