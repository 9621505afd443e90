-- Fires schedules, each at most once per nominal time; see the function.
-- Arrays, one element a definition: $1  ids    $2  seen, nominal times    $3  next nominal times
-- $4  delays, seconds    $5  missed: number of times that are skipped
-- $6  put_off_until; NULL if the schedule is fired
-- $7  schedules    $8  time_zones: the times were computed from them
-- Arrays, one element a fire: $9  fire_ids    $10 nominal times
-- Returns a row per definition. NULL runs: another tick fired first or is firing, or the definition
-- has changed.
SELECT
    schedule.id,
    jobctl.fire(
        schedule.id,
        schedule.seen,
        schedule.expression,
        schedule.time_zone,
        schedule.next,
        ARRAY(
            SELECT nominal.at
            FROM unnest($9::bigint[], $10::timestamptz[]) AS nominal (id, at)
            WHERE nominal.id = schedule.id
            ORDER BY nominal.at
        ),
        make_interval(secs => schedule.delay),
        schedule.missed,
        schedule.put_off_until
    ) AS runs
FROM unnest(
    $1::bigint[],
    $2::timestamptz[],
    $3::timestamptz[],
    $4::float8[],
    $5::bigint[],
    $6::timestamptz[],
    $7::text[],
    $8::text[]
) AS schedule (id, seen, next, delay, missed, put_off_until, expression, time_zone)
