-- Counts the running runs of these targets, and checks that the targets are held.
-- $1  scopes    $2  names, empty for all; of equal length
-- One row: how many run, and whether each target is held. If one is not, its runs can still start.
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
