-- Releases a worker's claim right.
-- $1  worker    $2  tick
SELECT jobctl.release_right($1::text, $2::text)
