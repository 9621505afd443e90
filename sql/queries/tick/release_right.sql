-- Releases a worker's claim right if this tick has it. One row, without a value.
-- $1  worker    $2  tick
SELECT jobctl.release_right($1::text, $2::text)
