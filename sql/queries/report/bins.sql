-- Ended runs and failed attempts per job and bin of time, and per job. A failed attempt counts when
-- it ended; the last attempt of a dead run counts as the death instead.
-- $1  start of the first bin    $2  seconds per bin    $3  jobs
-- `place` is the position of the job in $3, from 1. `index` is the bin, from 0; NULL: the whole
-- window. Empty bins have no row. Seconds are those of succeeded runs; `began` is the earliest
-- start of a run or attempt that took longer than a bin.
WITH lanes AS (
    SELECT lane.job, lane.lane::integer AS lane
    FROM unnest($3::text[]) WITH ORDINALITY AS lane (job, lane)
),
tried AS (
    SELECT run.id, run.job_type, run.status, run.attempts
    FROM jobctl.job_runs AS run
    WHERE run.finished_at >= $1::timestamptz
        AND run.attempts > 1
    UNION ALL
    SELECT run.id, run.job_type, run.status, run.attempts
    FROM jobctl.job_runs AS run
    WHERE run.status IN ('queued', 'failed')
        AND run.attempts > 0
    UNION ALL
    SELECT run.id, run.job_type, run.status, run.attempts
    FROM jobctl.job_runs AS run
    WHERE run.status = 'running'
        AND run.attempts > 1
),
ended AS (
    SELECT
        lanes.lane,
        run.status AS outcome,
        run.finished_at,
        -- A run that was cancelled while it waited has the start of an earlier attempt.
        CASE WHEN run.status <> 'cancelled' THEN run.started_at END AS started_at
    FROM jobctl.job_runs AS run
    JOIN lanes ON lanes.job = run.job_type
    WHERE run.finished_at >= $1::timestamptz
    UNION ALL
    SELECT lanes.lane, 'failed', attempt.finished_at, attempt.started_at
    FROM tried
    JOIN lanes ON lanes.job = tried.job_type
    -- OFFSET keeps the planner from reading the whole history: few runs are looked up.
    CROSS JOIN LATERAL (
        SELECT attempt.attempt, attempt.started_at, attempt.finished_at
        FROM jobctl.job_attempts AS attempt
        WHERE attempt.run_id = tried.id
            AND attempt.finished_at >= $1::timestamptz
            AND attempt.outcome IN ('failed', 'lease_expired')
        OFFSET 0
    ) AS attempt
    WHERE NOT (tried.status = 'dead' AND attempt.attempt = tried.attempts)
),
measured AS (
    SELECT
        ended.lane,
        floor(date_part('epoch', ended.finished_at - $1::timestamptz) / $2::float8)::integer AS bin,
        ended.outcome,
        ended.started_at,
        date_part('epoch', ended.finished_at - ended.started_at) AS took
    FROM ended
)
SELECT
    measured.lane AS place,
    measured.bin AS index,
    count(*) FILTER (WHERE measured.outcome = 'succeeded') AS succeeded,
    count(*) FILTER (WHERE measured.outcome = 'failed') AS failed,
    count(*) FILTER (WHERE measured.outcome = 'dead') AS dead,
    count(*) FILTER (WHERE measured.outcome = 'cancelled') AS cancelled,
    min(measured.started_at) FILTER (WHERE measured.took > $2::float8) AS began,
    percentile_disc(0.5) WITHIN GROUP (ORDER BY measured.took)
        FILTER (WHERE measured.outcome = 'succeeded') AS median,
    max(measured.took) FILTER (WHERE measured.outcome = 'succeeded') AS longest
FROM measured
GROUP BY GROUPING SETS ((measured.lane, measured.bin), (measured.lane))
ORDER BY measured.lane, measured.bin
