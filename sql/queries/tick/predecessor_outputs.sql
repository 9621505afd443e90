-- Returns the results of the runs that a run waited for, as a JSON array. All outputs together have
-- at most 262,144 characters: each is cut to its last characters, to an equal part of this number.
-- $1  run
-- One row.
SELECT
    coalesce(
        jsonb_agg(
            jsonb_build_object(
                'run', predecessor.id,
                'job', predecessor.job_type,
                'status', predecessor.status,
                'output', right(predecessor.output, 262144 / predecessor.runs::integer)
            )
            ORDER BY predecessor.id
        ),
        '[]'
    )::text AS results
FROM (
    SELECT
        dependency.after_id AS id,
        run.job_type,
        run.status,
        attempt.output,
        count(*) OVER () AS runs
    FROM jobctl.job_dependencies AS dependency
    LEFT JOIN jobctl.job_runs AS run ON run.id = dependency.after_id
    LEFT JOIN jobctl.job_attempts AS attempt
        ON attempt.run_id = run.id
        -- dependency.attempt: the attempt with which the predecessor ended.
        AND attempt.attempt = coalesce(dependency.attempt, run.attempts)
    WHERE dependency.run_id = $1::bigint
) AS predecessor
