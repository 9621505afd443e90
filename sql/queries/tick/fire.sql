-- Moves schedules forward, and queues runs for their due times. Each time is fired at most once.
-- Arrays, one element a schedule:
-- $1  ids of definitions     $2  seen: next_run_at when due_schedules.sql read it
-- $3  next nominal times     $4  delays of the runs after their nominal times, seconds
-- $5  missed: the number of times that are skipped
-- $6  put_off_until; NULL if the schedule is fired
-- $7  schedules    $8  time_zones: the times were computed from these two
-- $9  schedule_ids, if an application made the schedule; NULL: it is the definition's own
-- Arrays, one element a fire:
-- $10 places of its schedule in the arrays above, from 1    $11 nominal times
-- A row per schedule, with its place and the runs that it queued. NULL runs: another tick fired
-- first or is firing, or the definition or the schedule has changed.
SELECT
    schedule.place,
    jobctl.fire(
        definition_id => schedule.id,
        seen => schedule.seen,
        schedule => schedule.expression,
        time_zone => schedule.time_zone,
        next => schedule.next,
        times => ARRAY(
            SELECT nominal.at
            FROM unnest($10::bigint[], $11::timestamptz[]) AS nominal (place, at)
            WHERE nominal.place = schedule.place
            ORDER BY nominal.at
        ),
        delay => make_interval(secs => schedule.delay),
        missed => schedule.missed,
        put_off_until => schedule.put_off_until,
        schedule_id => schedule.schedule_id
    ) AS runs
FROM unnest(
    $1::bigint[], $2::timestamptz[], $3::timestamptz[], $4::float8[], $5::bigint[],
    $6::timestamptz[], $7::text[], $8::text[], $9::bigint[]
) WITH ORDINALITY AS schedule (
    id,
    seen,
    next,
    delay,
    missed,
    put_off_until,
    expression,
    time_zone,
    schedule_id,
    place
)
