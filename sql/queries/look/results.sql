-- Reads what the given runs have printed in their last attempts. Only runs that the login may see.
-- $1  ids
-- A row per run.
SELECT result.id, result.output
FROM jobctl.results($1::bigint[]) AS result
