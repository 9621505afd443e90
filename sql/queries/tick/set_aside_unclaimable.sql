-- Tries to claim each of these runs, and undoes the claim. Puts off the runs that can't be claimed,
-- and ends the runs that can't be read (`is_dead`).
-- $1  worker    $2  runs    $3  put_off_for, seconds
-- $4  slow: the error of a claim that took too long; then puts off all runs without a try. NULL:
--     tries each run
-- A row per run that can't be claimed: the error, and a second error if the run could not be put
-- off or ended. The other runs stay as they are.
SELECT
    aside.id,
    aside.is_dead,
    aside.code,
    aside.message,
    aside.second_code,
    aside.second_message
FROM jobctl.set_aside_unclaimable(
    worker => $1::text,
    runs => $2::bigint[],
    put_off_for => make_interval(secs => $3::float8),
    slow => $4::text
) AS aside
