-- Puts off the runs that can't be claimed, and ends those that can't be read.
-- $1  worker    $2  runs    $3  put_off_for, seconds    $4  slow: the error if claims take too long
-- A row per such run. A missing run can be claimed, and stays as it is.
SELECT
    aside.id,
    aside.is_dead,
    aside.code,
    aside.message,
    aside.second_code,
    aside.second_message
FROM jobctl.set_aside_unclaimable(
    $1::text,
    $2::bigint[],
    make_interval(secs => $3::float8),
    $4::text
) AS aside
