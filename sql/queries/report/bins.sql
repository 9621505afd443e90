-- Ended runs and failed attempts per job and bin of time. A failed attempt is in the bin of its
-- end. The last attempt of a dead run is counted as dead, not as failed.
-- $1  from, the start of the first bin    $2  width, seconds    $3  names of jobs
-- `place` is the position of the job in $3, from 1. `index` is the bin, from 0. Empty bins have no
-- row. `longest` is in seconds, of succeeded runs. `began` is the earliest start of a run or
-- attempt that took longer than a bin.
WITH lanes AS (
    SELECT lane.job, lane.lane::integer AS lane
    FROM unnest($3::text[]) WITH ORDINALITY AS lane (job, lane)
),
ended AS (
    SELECT
        run.job_type AS job,
        run.status AS outcome,
        run.finished_at,
        -- A run that was cancelled while it waited has the start of an earlier attempt.
        CASE WHEN run.status <> 'cancelled' THEN run.started_at END AS started_at
    FROM jobctl.job_runs AS run
    WHERE run.finished_at >= $1::timestamptz
    UNION ALL
    SELECT run.job_type, 'failed', attempt.finished_at, attempt.started_at
    FROM jobctl.job_attempts AS attempt
    JOIN jobctl.job_runs AS run
        ON run.id = attempt.run_id
    WHERE attempt.outcome IN ('failed', 'lease_expired')
        AND attempt.finished_at >= $1::timestamptz
        AND NOT (run.status = 'dead' AND attempt.attempt = run.attempts)
),
measured AS (
    SELECT
        lanes.lane,
        floor(date_part('epoch', ended.finished_at - $1::timestamptz) / $2::float8)::integer AS bin,
        ended.outcome,
        ended.started_at,
        date_part('epoch', ended.finished_at - ended.started_at) AS took
    FROM ended
    JOIN lanes
        ON lanes.job = ended.job
)
SELECT
    measured.lane AS place,
    measured.bin AS index,
    count(*) FILTER (WHERE measured.outcome = 'succeeded') AS succeeded,
    count(*) FILTER (WHERE measured.outcome = 'failed') AS failed,
    count(*) FILTER (WHERE measured.outcome = 'dead') AS dead,
    count(*) FILTER (WHERE measured.outcome = 'cancelled') AS cancelled,
    min(measured.started_at) FILTER (WHERE measured.took > $2::float8) AS began,
    max(measured.took) FILTER (WHERE measured.outcome = 'succeeded') AS longest
FROM measured
GROUP BY measured.lane, measured.bin
ORDER BY measured.lane, measured.bin
