-- Returns whether any worker claims due runs of this job in this queue. Internal: only jobctl calls
-- it.
--
--   tick_age    seconds after its last tick until a worker counts as silent
--
--   served      a worker that ticks and is not held serves the queue
--   accepted    such a worker also runs the job
--   served_by_held, accepted_by_held: the same of workers that a person holds. Their last tick may
--   be older than tick_age: a host may be stopped while its worker is held, and `check` must not
--   report its queue for that
CREATE OR REPLACE FUNCTION jobctl.serving(
    job text,
    queue text,
    tick_age float8,
    OUT served boolean,
    OUT accepted boolean,
    OUT served_by_held boolean,
    OUT accepted_by_held boolean
)
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT
        coalesce(bool_or(judged.ticks), false),
        coalesce(bool_or(judged.ticks AND judged.accepts), false),
        coalesce(bool_or(seen.is_held), false),
        coalesce(bool_or(seen.is_held AND judged.accepts), false)
    FROM jobctl.job_workers AS worker
    JOIN jobctl.seen_workers AS seen ON seen.worker = worker.worker
    LEFT JOIN jobctl.job_definitions AS definition ON definition.name = serving.job
    CROSS JOIN LATERAL (
        SELECT
            seen.seen_at > now() - make_interval(secs => serving.tick_age) AND NOT seen.is_held
                AS ticks,
            serving.job <> ALL (worker.excluded_jobs)
                AND coalesce(definition.kind <> ALL (worker.excluded_kinds), true) AS accepts
    ) AS judged
    WHERE worker.queues = '{}'
        OR serving.queue = ANY (worker.queues)
$$;
