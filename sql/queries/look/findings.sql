-- Finds the problems of the work. A row per finding: a JSON object with its code and the facts for
-- its sentence, see `Fact` in src/store/status.rs.
-- $1  jobs; NULL for all
-- $2  tick_age: seconds after its last tick until a worker is silent
-- $3  lag: seconds after which a due run, a due schedule, an expired lease, a stored result or a
--     decision about blocked runs is late. A definition may have another lag for its runs.
-- $4  running: seconds that a run may be running; NULL for any number
-- $5  dead: seconds after which a dead run no longer counts; NULL for never
-- $6  failures: seconds after which a failed attempt no longer counts; NULL to count none
--
-- The database's clock may have been ahead. So a time that is more than a minute in the future is
-- wrong: a problem with such a time counts as old, and a success with such a time does not count.
WITH worker AS (
    -- `place` 1 has the worker that ticked last. Held workers come after the others.
    SELECT
        worker.worker,
        worker.last_tick_at,
        worker.missed_for,
        worker.slow_at,
        worker.slow_seconds,
        worker.slow_since,
        seen.is_held,
        coalesce(seen.seen_at > now() - make_interval(secs => $2::float8), false) AS ticks,
        row_number() OVER (
            ORDER BY seen.is_held, worker.last_tick_at DESC, worker.worker
        ) AS place
    FROM jobctl.job_workers AS worker
    JOIN jobctl.seen_workers AS seen ON seen.worker = worker.worker
),
-- One row: how many workers tick.
ticking AS (
    SELECT count(*) FILTER (WHERE worker.ticks) AS workers FROM worker
),
-- The definitions of the jobs in $1.
definition AS (
    SELECT
        definition.id,
        definition.name,
        definition.kind,
        definition.schedule,
        definition.overlap,
        definition.timeout,
        definition.max_age,
        definition.max_lag,
        definition.alert_after,
        definition.usual,
        definition.usual_least,
        definition.usual_most,
        definition.keep,
        definition.keep_dead,
        definition.created_at,
        definition.enabled,
        definition.paused_at,
        definition.resumed_at,
        definition.next_run_at
    FROM jobctl.job_definitions AS definition
    WHERE $1::text[] IS NULL
        OR definition.name = ANY ($1::text[])
),
-- The pending runs by job and queue, and whether workers serve them. The columns that end in `id`
-- have the first of the counted runs.
pending AS (
    SELECT
        grouped.*,
        grouped.job_type IN ('shell', 'http')
            OR EXISTS (SELECT FROM definition WHERE definition.name = grouped.job_type) AS defined,
        -- Whether workers serve the queue and accept the job, see the function.
        serving.*,
        -- Whether a person holds the runs: then they are not overdue. A hold with a run_id was made
        -- by a run, not by a person.
        EXISTS (
            SELECT FROM jobctl.current_holds AS hold
            WHERE (hold.scope, hold.name) IN (
                ('all', ''),
                ('queue', grouped.queue),
                ('job', grouped.job_type)
            )
                AND hold.run_id IS NULL
        ) AS is_held
    FROM (
        SELECT
            run.job_type,
            run.queue,
            count(*) AS runs,
            count(*) FILTER (WHERE judged.is_late) AS late,
            count(*) FILTER (WHERE run.error_type = 'claim_rejected') AS put_off,
            min(run.id) FILTER (WHERE run.error_type = 'claim_rejected') AS put_off_id,
            count(*) FILTER (WHERE judged.is_snoozing) AS snoozing,
            min(run.id) FILTER (WHERE judged.is_snoozing) AS snoozing_id,
            count(*) FILTER (WHERE judged.is_ahead) AS ahead,
            min(run.id) FILTER (WHERE judged.is_ahead) AS ahead_id,
            min(run.id) FILTER (WHERE judged.is_late) AS id,
            min(run.run_at) FILTER (WHERE judged.is_late) AS since_at
        FROM jobctl.pending_runs AS run
        LEFT JOIN definition
            ON definition.name = run.job_type
        CROSS JOIN LATERAL (
            SELECT
                run.snoozed_attempts >= 10 AS is_snoozing,
                run.is_due
                    AND run.run_at
                        < now() - coalesce(definition.max_lag, make_interval(secs => $3::float8))
                    -- The finding worker_silent has the late runs of a silent worker.
                    AND (
                        run.worker IS NULL
                        OR run.worker IN (
                            SELECT pinned.worker FROM worker AS pinned WHERE pinned.ticks
                        )
                    )
                    AS is_late,
                -- The database's clock was ahead at the last update, which computed run_at.
                run.run_at > now()
                    AND run.updated_at > now() + interval '1 minute'
                    AS is_ahead
        ) AS judged
        WHERE $1::text[] IS NULL
            OR run.job_type = ANY ($1::text[])
        GROUP BY run.job_type, run.queue
    ) AS grouped
    CROSS JOIN LATERAL jobctl.serving(grouped.job_type, grouped.queue, $2::float8) AS serving
),
-- The unsettled dead runs by job.
dead AS (
    SELECT
        run.job_type,
        count(*) AS runs,
        min(run.finished_at) AS since_at,
        max(run.finished_at) AS newest_at
    FROM jobctl.job_runs AS run
    WHERE run.status = 'dead'
        AND run.settled_at IS NULL
        AND ($5::float8 IS NULL OR run.finished_at > now() - make_interval(secs => $5::float8))
        AND ($1::text[] IS NULL OR run.job_type = ANY ($1::text[]))
    GROUP BY run.job_type
),
-- The usual run times, for run_unusual. `known_median` and `known_p95` are NULL with fewer than
-- five successes, which say too little. Run times are read only for jobs that may have an unusual
-- run: the definition has a least run time, a run has been running for a minute, or runs take a
-- second on average. The average is read from the figures, in less time than from the attempts.
usual AS MATERIALIZED (
    SELECT
        definition.name,
        definition.usual_least AS least,
        definition.usual_most AS most,
        counted.median_seconds,
        counted.newest_run,
        counted.newest_seconds,
        CASE WHEN counted.successes >= 5 THEN counted.median_seconds END AS known_median,
        CASE WHEN counted.successes >= 5 THEN counted.p95_seconds END AS known_p95
    FROM definition
    CROSS JOIN LATERAL jobctl.usual_run_time(definition.name) AS counted
    WHERE definition.usual IS DISTINCT FROM 'off'
        AND (
            definition.usual_least IS NOT NULL
            OR EXISTS (
                SELECT FROM jobctl.job_runs AS run
                WHERE run.status = 'running'
                    AND run.job_type = definition.name
                    AND run.started_at < now() - interval '1 minute'
            )
            OR (
                SELECT sum(figures.run_time_seconds) / sum(figures.succeeded) >= 1
                FROM jobctl.job_figures AS figures
                WHERE figures.job_type = definition.name
                    AND figures.day > (now() AT TIME ZONE 'UTC')::date - 14
                    AND figures.succeeded > 0
            )
        )
),
found (facts) AS (
    -- Ticks start nothing until an operator accepts the restore.
    SELECT jsonb_build_object(
        'code', 'restore_unaccepted',
        'since_at', restore.recorded_at,
        'detail', restore.detail
    )
    FROM jobctl.unaccepted_restores AS restore
    UNION ALL
    -- The database is read-only for all roles. A setting of only this role or session does not
    -- count, because ticks use other roles and sessions.
    SELECT jsonb_build_object('code', 'database_read_only')
    FROM pg_settings AS setting
    WHERE current_setting('default_transaction_read_only')::boolean
        AND setting.name = 'default_transaction_read_only'
        AND setting.source NOT IN ('user', 'database user', 'client', 'session')
    UNION ALL
    -- No worker ticks. `worker` is the last that ticked. `is_new`: no worker has ever ticked, and
    -- the schema is so new that there was no time for a first tick.
    SELECT jsonb_build_object(
        'code', 'worker_missing',
        'worker', latest.worker,
        'since_at', latest.last_tick_at,
        'is_new', latest.worker IS NULL AND EXISTS (
            SELECT FROM jobctl.schema_migrations AS migration
            WHERE migration.applied_at > now() - make_interval(secs => $2::float8)
        )
    )
    FROM ticking
    LEFT JOIN worker AS latest
        ON latest.place = 1
    WHERE ticking.workers = 0
        -- NULL: no worker has ever ticked.
        AND latest.is_held IS NOT TRUE
    UNION ALL
    -- A worker does not tick, although other workers tick. Either only this worker may claim some
    -- due runs, or it ticked regularly until lately, see `missed_for` of job_workers.
    SELECT jsonb_build_object(
        'code', 'worker_silent',
        'worker', coalesce(worker.worker, pinned.worker),
        'since_at', coalesce(worker.last_tick_at, pinned.since_at),
        'is_new', worker.worker IS NULL,
        'run_id', pinned.run_id,
        'runs', coalesce(pinned.runs, 0)
    )
    FROM worker
    FULL JOIN (
        SELECT
            run.worker,
            count(*) AS runs,
            min(run.id) AS run_id,
            min(run.run_at) AS since_at
        FROM jobctl.pending_runs AS run
        WHERE run.worker IS NOT NULL
            AND run.is_due
            AND run.run_at < now() - make_interval(secs => $3::float8)
            AND ($1::text[] IS NULL OR run.job_type = ANY ($1::text[]))
        GROUP BY run.worker
    ) AS pinned ON pinned.worker = worker.worker
    CROSS JOIN ticking
    -- NULL: the worker of the pinned runs has never ticked.
    WHERE worker.ticks IS NOT TRUE
        AND worker.is_held IS NOT TRUE
        AND ticking.workers > 0
        AND (
            pinned.runs > 0
            OR now() - worker.last_tick_at
                <= worker.missed_for + make_interval(secs => $2::float8)
        )
    UNION ALL
    -- A worker waited long for an answer of the database in the last 10 minutes.
    SELECT jsonb_build_object(
        'code', 'database_slow',
        'worker', worker.worker,
        'since_at', worker.slow_since,
        -- The bounds replace an infinity, which JSON does not have.
        'seconds', least(greatest(worker.slow_seconds, 0), 1e9),
        'newest_at', worker.slow_at
    )
    FROM worker
    WHERE worker.slow_at BETWEEN now() - interval '10 minutes' AND now() + interval '1 minute'
    UNION ALL
    -- Late runs: no worker serves their queue, or no worker of the queue runs their job, or workers
    -- do not start them in time.
    SELECT jsonb_build_object(
        'code', late.code,
        'job_type', late.job_type,
        'queue', late.queue,
        'run_id', min(late.id),
        'since_at', min(late.since_at),
        'runs', sum(late.runs),
        'jobs', array_agg(late.pending_job)
    )
    FROM (
        SELECT
            judged.code,
            pending.late AS runs,
            pending.id,
            pending.since_at,
            pending.job_type AS pending_job,
            CASE WHEN judged.code <> 'queue_unserved' THEN pending.job_type END AS job_type,
            CASE WHEN judged.code = 'queue_unserved' THEN pending.queue END AS queue
        FROM pending
        CROSS JOIN ticking
        CROSS JOIN LATERAL (
            SELECT CASE
                WHEN pending.is_held THEN NULL
                WHEN NOT pending.served AND NOT pending.served_by_held AND ticking.workers > 0
                    THEN 'queue_unserved'
                -- The finding definition_missing has these runs.
                WHEN NOT pending.defined THEN NULL
                WHEN pending.accepted THEN 'runs_overdue'
                -- All workers that serve the queue exclude the job, as --shell may do.
                WHEN pending.served AND NOT pending.accepted_by_held THEN 'job_unserved'
            END AS code
        ) AS judged
    ) AS late
    WHERE late.code IS NOT NULL
        AND late.runs > 0
    GROUP BY late.code, late.job_type, late.queue
    UNION ALL
    -- Pending runs that are not late, but have another problem.
    SELECT jsonb_build_object(
        'code', problem.code,
        'job_type', pending.job_type,
        'run_id', min(problem.run_id),
        'runs', sum(problem.runs),
        'jobs', array_agg(pending.job_type)
    )
    FROM pending
    CROSS JOIN LATERAL (VALUES
        -- A tick puts off a run whose claim the database rejects, so it is never late.
        ('runs_rejected', pending.put_off, pending.put_off_id),
        ('runs_snoozing', pending.snoozing, pending.snoozing_id),
        -- The database's clock was ahead when these runs got their times, so they wait too long.
        ('clock_ahead', pending.ahead, pending.ahead_id)
    ) AS problem (code, runs, run_id)
    WHERE problem.runs > 0
    GROUP BY problem.code, pending.job_type
    UNION ALL
    -- Pending and blocked runs of a job without a definition.
    SELECT jsonb_build_object(
        'code', 'definition_missing',
        'job_type', undefined.job_type,
        'runs', sum(undefined.runs)
    )
    FROM (
        SELECT pending.job_type, pending.runs
        FROM pending
        WHERE NOT pending.defined
        UNION ALL
        SELECT blocked.job_type, count(*) AS runs
        FROM jobctl.job_runs AS blocked
        WHERE blocked.status = 'blocked'
            AND ($1::text[] IS NULL OR blocked.job_type = ANY ($1::text[]))
            AND blocked.job_type NOT IN ('shell', 'http')
            AND NOT EXISTS (SELECT FROM definition WHERE definition.name = blocked.job_type)
        GROUP BY blocked.job_type
    ) AS undefined
    GROUP BY undefined.job_type
    UNION ALL
    -- No tick has recovered a run whose lease ended, or recorded a stored result.
    SELECT jsonb_build_object(
        'code', late.code,
        'worker', lease.worker,
        'run_id', min(lease.id),
        'since_at', min(late.since_at),
        'runs', count(*)
    )
    FROM jobctl.leases AS lease
    CROSS JOIN LATERAL (
        VALUES
        ('lease_lost', CASE WHEN lease.is_lost THEN lease.locked_until END),
        ('results_unrecorded', lease.result_at)
    ) AS late (code, since_at)
    WHERE late.since_at
            NOT BETWEEN now() - make_interval(secs => $3::float8) AND now() + interval '1 minute'
        AND ($1::text[] IS NULL OR lease.job_type = ANY ($1::text[]))
    GROUP BY late.code, lease.worker
    UNION ALL
    -- No tick has fired the schedule of a definition, although workers tick.
    SELECT jsonb_build_object(
        'code', 'schedule_late',
        'job_type', definition.name,
        'since_at', definition.next_run_at
    )
    FROM definition
    CROSS JOIN ticking
    WHERE definition.enabled
        AND definition.paused_at IS NULL
        AND definition.next_run_at < now() - make_interval(secs => $3::float8)
        AND ticking.workers > 0
    UNION ALL
    -- Schedules of applications. A tick puts off a schedule that it can't fire: it is broken.
    SELECT jsonb_build_object(
        'code', CASE WHEN judged.is_broken THEN 'schedule_broken' ELSE 'schedule_late' END,
        'job_type', definition.name,
        'since_at', judged.since_at,
        'runs', judged.schedules,
        'schedule', judged.example
    )
    FROM definition
    CROSS JOIN ticking
    CROSS JOIN LATERAL (
        SELECT
            schedule.put_off_until IS NOT NULL AS is_broken,
            count(*) AS schedules,
            min(coalesce(schedule.next_run_at, schedule.updated_at)) AS since_at,
            min(format('%s of login %s', schedule.name, schedule.owner)) AS example
        FROM jobctl.job_schedules AS schedule
        WHERE schedule.definition_id = definition.id
            AND (
                schedule.put_off_until IS NOT NULL
                OR ticking.workers > 0
                AND schedule.due_at < now() - make_interval(secs => $3::float8)
                -- A schedule that was changed or resumed is not late before the same time.
                AND greatest(schedule.updated_at, definition.resumed_at)
                    < now() - make_interval(secs => $3::float8)
            )
        GROUP BY schedule.put_off_until IS NOT NULL
    ) AS judged
    WHERE definition.enabled
        AND definition.paused_at IS NULL
    UNION ALL
    -- Dead runs of a job, with the error of the newest one.
    SELECT jsonb_build_object(
        'code', 'runs_dead',
        'job_type', dead.job_type,
        'run_id', newest.id,
        'since_at', dead.since_at,
        'runs', dead.runs,
        'detail', left(newest.last_error, 10000),
        'newest_at', dead.newest_at
    )
    FROM dead
    CROSS JOIN LATERAL (
        SELECT run.id, run.last_error
        FROM jobctl.job_runs AS run
        WHERE run.status = 'dead'
            AND run.settled_at IS NULL
            AND run.finished_at = dead.newest_at
            AND run.job_type = dead.job_type
        ORDER BY run.id DESC
        LIMIT 1
    ) AS newest
    UNION ALL
    -- A job whose last attempts failed: as many as its `alert_after` (0: never reported), or fewer
    -- if its command can't be started (`is_lasting`).
    SELECT jsonb_build_object(
        'code', 'job_failing',
        'job_type', failing.job_type,
        'run_id', failing.run_id,
        'since_at', failing.since_at,
        'runs', failing.failures,
        'detail', left(run.last_error, 10000),
        'next_at', failing.next_attempt_at
    )
    FROM jobctl.failing_jobs AS failing
    JOIN jobctl.job_runs AS run ON run.id = failing.run_id
    LEFT JOIN definition ON definition.name = failing.job_type
    CROSS JOIN LATERAL (SELECT coalesce(definition.alert_after, 3) AS failures) AS alert
    WHERE alert.failures > 0
        AND (failing.failures >= alert.failures OR failing.is_lasting)
        AND ($1::text[] IS NULL OR failing.job_type = ANY ($1::text[]))
    UNION ALL
    -- Blocked runs whose predecessor has ended without the success that they wait for.
    SELECT jsonb_build_object(
        'code', 'runs_stuck',
        'job_type', stuck.job,
        'run_id', max(stuck.id),
        'since_at', min(stuck.since),
        'runs', count(DISTINCT stuck.id),
        'newest_at', max(stuck.since)
    )
    FROM (
        SELECT
            awaited.follower_job AS job,
            awaited.follower_id AS id,
            predecessor.finished_at AS since
        FROM jobctl.awaited_runs AS awaited
        LEFT JOIN jobctl.job_runs AS predecessor ON predecessor.id = awaited.id
        WHERE awaited.is_stuck
        UNION ALL
        -- Blocked runs without a row that says for which run they wait. These rows can get lost in
        -- a restore of only some tables. Then most blocked runs have lost their rows, so reading
        -- 10,000 blocked runs is enough.
        SELECT run.job_type AS job, run.id, NULL AS since
        FROM (
            SELECT blocked.job_type, blocked.id
            FROM jobctl.job_runs AS blocked
            WHERE blocked.status = 'blocked'
                AND ($1::text[] IS NULL OR blocked.job_type = ANY ($1::text[]))
            LIMIT 10000
        ) AS run
        WHERE NOT EXISTS (
            SELECT FROM jobctl.job_dependencies AS dependency
            WHERE dependency.run_id = run.id
                AND dependency.state <> 'met'
        )
    ) AS stuck
    WHERE $1::text[] IS NULL OR stuck.job = ANY ($1::text[])
    GROUP BY stuck.job
    UNION ALL
    -- No tick has decided about blocked runs, although a predecessor has ended.
    SELECT jsonb_build_object(
        'code', 'runs_unreleased',
        'job_type', follower.job_type,
        'run_id', min(follower.id),
        'since_at', min(predecessor.finished_at),
        'runs', count(DISTINCT follower.id)
    )
    FROM jobctl.job_dependencies AS dependency
    JOIN jobctl.job_runs AS follower ON follower.id = dependency.run_id
    JOIN jobctl.job_runs AS predecessor ON predecessor.id = dependency.after_id
    WHERE dependency.state = 'due'
        AND follower.status = 'blocked'
        AND ($1::text[] IS NULL OR follower.job_type = ANY ($1::text[]))
        AND predecessor.finished_at
            NOT BETWEEN now() - make_interval(secs => $3::float8) AND now() + interval '1 minute'
        -- The finding runs_stuck has the others: with the rule `success`, a run stays blocked if
        -- its predecessor ends without success.
        AND (predecessor.status = 'succeeded' OR dependency.rule <> 'success')
    GROUP BY follower.job_type
    UNION ALL
    -- A run has been running for longer than $4.
    SELECT jsonb_build_object(
        'code', 'run_long',
        'job_type', run.job_type,
        'worker', run.locked_by,
        'run_id', run.id,
        'since_at', run.started_at,
        'runs', 1
    )
    FROM jobctl.job_runs AS run
    WHERE run.status = 'running'
        AND run.started_at
            NOT BETWEEN now() - make_interval(secs => $4::float8) AND now() + interval '1 minute'
        AND ($1::text[] IS NULL OR run.job_type = ANY ($1::text[]))
    UNION ALL
    -- A run has been running for longer than usual.
    SELECT jsonb_build_object(
        'code', 'run_unusual',
        'job_type', run.job_type,
        'worker', run.locked_by,
        'run_id', run.id,
        'since_at', run.started_at,
        'runs', 1,
        'usual_seconds', usual.median_seconds,
        'limit_seconds', extract(epoch FROM usual.most)
    )
    FROM jobctl.job_runs AS run
    JOIN usual ON usual.name = run.job_type
    WHERE run.status = 'running'
        AND run.started_at < now() - coalesce(
            usual.most,
            CASE
                -- The condition is needed because `greatest` ignores NULL.
                WHEN usual.known_p95 IS NOT NULL
                    THEN greatest(make_interval(secs => 3 * usual.known_p95), interval '1 minute')
            END
        )
    UNION ALL
    -- The newest success was shorter than usual.
    SELECT jsonb_build_object(
        'code', 'run_unusual',
        'job_type', usual.name,
        'run_id', usual.newest_run,
        'runs', 1,
        'seconds', usual.newest_seconds,
        'usual_seconds', usual.median_seconds,
        'limit_seconds', extract(epoch FROM usual.least)
    )
    FROM usual
    WHERE usual.newest_seconds < coalesce(
            extract(epoch FROM usual.least),
            CASE WHEN usual.known_median >= 10 THEN usual.known_median / 10 END
        )
    UNION ALL
    -- The average run time grows, and will reach the timeout within a week.
    SELECT jsonb_build_object(
        'code', 'run_unusual',
        'job_type', definition.name,
        'usual_seconds', trend.average,
        'days', ceil(trend.days_to_timeout)
    )
    FROM definition
    CROSS JOIN LATERAL jobctl.run_time_trend(definition.name, definition.timeout) AS trend
    WHERE definition.enabled
        AND definition.timeout IS NOT NULL
        AND definition.usual IS DISTINCT FROM 'off'
        AND trend.days_to_timeout <= 7
    UNION ALL
    -- The attempts of a job that failed within $6, with the error of the newest run.
    SELECT jsonb_build_object(
        'code', 'attempts_failing',
        'job_type', failing.job_type,
        'run_id', failing.run_id,
        'runs', failing.attempts,
        'detail', left(failing.last_error, 10000)
    )
    FROM (
        SELECT DISTINCT ON (run.job_type)
            run.job_type,
            attempt.run_id,
            run.last_error,
            count(*) OVER (PARTITION BY run.job_type) AS attempts
        FROM jobctl.job_attempts AS attempt
        JOIN jobctl.job_runs AS run
            ON run.id = attempt.run_id
        WHERE attempt.outcome IN ('failed', 'lease_expired')
            AND attempt.finished_at > now() - make_interval(secs => $6::float8)
            AND ($1::text[] IS NULL OR run.job_type = ANY ($1::text[]))
        ORDER BY run.job_type, attempt.finished_at DESC, attempt.run_id DESC
    ) AS failing
    UNION ALL
    -- A job has not succeeded for longer than its `max_age`. If it never succeeded, the time since
    -- its definition counts.
    SELECT jsonb_build_object(
        'code', 'job_stale',
        'job_type', definition.name,
        'since_at', counted.since_at,
        'seconds', extract(epoch FROM definition.max_age)
    )
    FROM definition
    LEFT JOIN LATERAL (
        SELECT max(figures.last_succeeded_at) AS finished_at
        FROM jobctl.job_figures AS figures
        WHERE figures.job_type = definition.name
            AND definition.max_age IS NOT NULL
            AND figures.last_succeeded_at <= now() + interval '1 minute'
    ) AS success ON true
    CROSS JOIN LATERAL (
        SELECT
            greatest(
                success.finished_at,
                CASE
                    WHEN definition.created_at <= now() + interval '1 minute'
                        THEN definition.created_at
                END
            ) AS since_at
    ) AS counted
    WHERE definition.enabled
        -- A pause has no effect on a job without a schedule.
        AND (definition.paused_at IS NULL OR definition.schedule IS NULL)
        AND coalesce(counted.since_at, '-infinity') < now() - definition.max_age
    UNION ALL
    -- A scheduled job without a timeout whose runs do not overlap: one that hangs would stop all
    -- later ones.
    SELECT jsonb_build_object('code', 'timeout_missing', 'job_type', definition.name)
    FROM definition
    WHERE definition.enabled
        AND definition.paused_at IS NULL
        AND definition.schedule IS NOT NULL
        AND definition.overlap <> 'allow'
        AND definition.kind = 'shell'
        AND definition.timeout IS NULL
    UNION ALL
    -- Nothing prunes the history: `jobctl prune` should have deleted more than 1,000 runs over 10
    -- days ago. By default, it keeps runs for at most 90 days, so only runs that ended over 100
    -- days ago count, also if their definition has a shorter time.
    SELECT jsonb_build_object('code', 'prune_missing', 'since_at', oldest.finished_at)
    FROM (
        SELECT ended.finished_at
        FROM (
            SELECT run.finished_at, run.status, run.job_type
            FROM jobctl.job_runs AS run
            WHERE run.finished_at < now() - interval '100 days'
                AND run.created_at < now() - interval '100 days'
            ORDER BY run.finished_at
            -- Limits the cost of this finding: reads only the 5,000 runs that ended first.
            LIMIT 5000
        ) AS ended
        LEFT JOIN definition ON definition.name = ended.job_type
        WHERE coalesce(
            ended.finished_at < now() - interval '10 days' - CASE ended.status
                WHEN 'dead' THEN definition.keep_dead
                ELSE definition.keep
            END,
            -- NULL: no definition says how long to keep the run, so the 100 days suffice.
            true
        )
        ORDER BY ended.finished_at
        -- The row after the first 1,000: there is one only if more runs than these are too old.
        OFFSET 1000
        LIMIT 1
    ) AS oldest
    JOIN pg_class AS relation
        ON relation.oid = to_regclass('jobctl.job_runs')
    -- A small history needs no pruning. reltuples is the estimated number of runs.
    WHERE relation.reltuples > 100000
        AND $1::text[] IS NULL
    UNION ALL
    -- The attempt that began an effect has ended, or the effect began more than a day ago. Outside
    -- of a job, only its age shows that the command does not run any more.
    SELECT jsonb_build_object(
        'code', 'effect_open',
        'since_at', min(effect.recorded_at),
        'runs', count(*)
    )
    FROM jobctl.job_effects AS effect
    WHERE effect.completed_at IS NULL
        AND (
            effect.recorded_at NOT BETWEEN now() - interval '1 day' AND now() + interval '1 minute'
            OR effect.run_id IS NOT NULL
            AND NOT jobctl.is_running(effect.run_id, effect.attempt)
        )
        AND $1::text[] IS NULL
    HAVING count(*) > 0
)
SELECT
    found.facts
    || jsonb_build_object('last_line', why.last_line, 'cause', why.cause)
FROM found
-- For failures, the last line that the newest failed attempt of the run printed (`last_line`). A
-- viewer may not read this line, but may read the line without values (`cause`). Only for an exit
-- status, because the error of other failures contains the cause.
LEFT JOIN LATERAL (
    SELECT
        texts.last_line,
        CASE attempt.error_type WHEN 'exit_code' THEN attempt.cause END AS cause
    FROM jobctl.job_attempts AS attempt
    JOIN jobctl.job_runs AS run
        ON run.id = attempt.run_id
        -- With another error type, the run ended later, for another reason.
        AND run.error_type IS NOT DISTINCT FROM attempt.error_type
    CROSS JOIN LATERAL jobctl.attempt_texts(attempt.run_id, attempt.attempt) AS texts
    WHERE attempt.run_id = (found.facts ->> 'run_id')::bigint
        AND attempt.outcome IN ('failed', 'lease_expired')
    ORDER BY attempt.attempt DESC
    LIMIT 1
) AS why ON found.facts ->> 'code' IN ('runs_dead', 'job_failing', 'attempts_failing')
ORDER BY
    found.facts ->> 'job_type',
    found.facts ->> 'queue',
    found.facts ->> 'worker',
    (found.facts ->> 'run_id')::bigint
