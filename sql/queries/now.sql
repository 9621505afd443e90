-- The one clock.
SELECT now() AS now
