-- The time by the database's clock, the only clock for decisions.
SELECT now() AS now
