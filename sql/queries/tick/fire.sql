-- Moves schedules forward, and queues runs for their due times. Each time is fired at most once.
-- Arrays, one element a schedule: $1  ids of definitions    $2  seen, nominal times
-- $3  next nominal times    $4  delays, seconds    $5  missed: number of times that are skipped
-- $6  put_off_until; NULL if the schedule is fired
-- $7  schedules    $8  time_zones: the times were computed from them
-- $9  schedule_ids: those of applications; NULL: the definition's own
-- Arrays, one element a fire: $10 places of its schedule, from 1    $11 nominal times
-- Returns a row per schedule, with its place. NULL runs: another tick fired first or is firing, or
-- the definition or the schedule has changed.
SELECT
    schedule.place,
    jobctl.fire(
        schedule.id,
        schedule.seen,
        schedule.expression,
        schedule.time_zone,
        schedule.next,
        ARRAY(
            SELECT nominal.at
            FROM unnest($10::bigint[], $11::timestamptz[]) AS nominal (place, at)
            WHERE nominal.place = schedule.place
            ORDER BY nominal.at
        ),
        make_interval(secs => schedule.delay),
        schedule.missed,
        schedule.put_off_until,
        schedule.schedule_id
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
