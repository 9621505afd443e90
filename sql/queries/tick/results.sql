-- The results of the runs that a run waited for, as a JSON array: the ends of their outputs, of all
-- together 262,144 characters.
-- $1  run
-- One row.
SELECT
    coalesce(
        jsonb_agg(
            jsonb_build_object(
                'run', before.id,
                'job', before.job_type,
                'status', before.status,
                'output', right(before.output, 262144 / before.runs::integer)
            )
            ORDER BY before.id
        ),
        '[]'
    )::text AS results
FROM (
    SELECT
        waits.after_id AS id,
        run.job_type,
        run.status,
        attempt.output,
        count(*) OVER () AS runs
    FROM jobctl.job_dependencies AS waits
    LEFT JOIN jobctl.job_runs AS run ON run.id = waits.after_id
    LEFT JOIN jobctl.job_attempts AS attempt
        ON attempt.run_id = run.id
        AND attempt.attempt = coalesce(waits.attempt, run.attempts)
    WHERE waits.run_id = $1::bigint
) AS before
