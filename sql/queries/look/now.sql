-- Returns the time of the database's clock, by which all workers decide.
SELECT now() AS now
